package mutex

import (
	"context"
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
	c.cleanups.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.TicketTTL),
		do: func(ctx context.Context) error {
			_, err := c.leave(ctx, lock, uuid)
			return err
		}})
}

// cancelLater cancels an attempt in the background.
func (c *Client) cancelLater(lock, uuid string, cancel func(context.Context) error) {
	c.cleanups.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL), do: cancel})
}

// cancelAttempt commits a transaction that cancels an attempt, with the lease of its tombstone. Where etcd has no space
// for a tombstone, what the attempt acquired with the last space is at least withdrawn.
func (c *Client) cancelAttempt(ctx context.Context, cancel func(clientv3.LeaseID) locktxn.Txn,
	withdraw locktxn.Txn) (r etcdretry.Answer, err error) {
	lease, err := c.tombstones.grant(ctx)
	if err == nil {
		r, err = c.retry.Send(ctx, cancel(lease))
	}
	switch {
	case locktxn.LeaseGone(err):
		c.tombstones.forget(lease)
	case locktxn.NoSpace(err):
		r, _ = c.retry.Send(ctx, withdraw)
	}
	return r, err
}
