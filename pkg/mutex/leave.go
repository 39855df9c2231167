package mutex

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// The tail of a queue keeps newcomers behind the waiters. So a waiter that leaves as the tail puts it back to the
// ticket before it. If the newest waiter dies instead, another puts it back when it finds out.

// maxLeaves is how often a waiter tries to put the tail back while those before it leave, too.
const maxLeaves = 5

// leave gives up what an attempt has in the queue, if anything, and answers with what the operations read meanwhile.
func (c *Client) leave(ctx context.Context, lock, uuid string, read ...clientv3.Op) (r etcdretry.Answer, err error) {
	for range maxLeaves {
		if r, err = c.retry.Send(ctx, locktxn.Leave(c.layout, lock, uuid, read...)); err != nil || !r.Succeeded {
			return r, err
		}
		before := locktxn.Newest(c.layout, r.Keys(len(read)).Kvs, uuid)
		left, err := c.retry.Send(ctx, locktxn.LeaveAsTail(c.layout, lock, uuid, before))
		switch {
		case err == nil && left.Succeeded:
			return r, nil
		case locktxn.NoSpace(err):
			_, err = c.retry.Send(ctx, locktxn.LeaveBare(c.layout, lock, uuid))
			return r, err
		case err != nil && !locktxn.LeaseGone(err):
			return r, err
		}
	}
	_, err = c.retry.Send(ctx, locktxn.LeaveBare(c.layout, lock, uuid))
	return r, err
}

// leaveLater is leave in the background, of an attempt whose lease is revoked after that.
func (c *Client) leaveLater(lock, uuid string) {
	c.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.TicketTTL),
		do: func(ctx context.Context) error {
			_, err := c.leave(ctx, lock, uuid)
			return err
		}})
}

// cancelLater ends an acquisition of this kind whose outcome is unknown: when it is done, nothing is held by this uuid
// and nothing will be, and it stands in no queue.
func (c *Client) cancelLater(k kind, lock, uuid string) {
	c.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL),
		do: func(ctx context.Context) error { return c.cancelAttempt(ctx, k, lock, uuid) }})
}

func (c *Client) cancelAttempt(ctx context.Context, k kind, lock, uuid string) error {
	cancel := locktxn.CancelQueued
	withdraw := locktxn.WithdrawQueued
	if k.shared() {
		cancel = locktxn.CancelShare
		withdraw = locktxn.WithdrawShare
	}
	var r etcdretry.Answer
	lease, err := c.tombstoneLease(ctx, &c.tombstones)
	if err == nil {
		r, err = c.retry.Send(ctx, cancel(c.layout, lock, uuid, lease))
	}
	switch {
	case locktxn.LeaseGone(err):
		c.tombstones.forget(lease)
	case locktxn.NoSpace(err):
		// No tombstone can be written. What was acquired with the last space is at least given back.
		r, _ = c.retry.Send(ctx, withdraw(c.layout, lock, uuid))
	}
	if !k.shared() || r.TxnResponse == nil {
		return err
	}
	h := c.holders(lock, r, 0)
	if mine, ok := h.mine(uuid); ok {
		_, failed := c.retry.Send(ctx, locktxn.Withdraw(c.layout, mine.Name, uuid))
		err = errors.Join(err, failed)
	}
	return err
}
