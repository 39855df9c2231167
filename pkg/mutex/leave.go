package mutex

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
)

// giveUp leaves the queue because ctx ended. The error has the holder and the position.
func (a *acquisition) giveUp(ctx context.Context, err error) error {
	position := a.queue.position
	if position.Revision == 0 || a.indeterminate {
		a.giveUpAttempt()
		switch {
		case a.holder.Name != "":
			return a.heldUntil(ctx)
		case err == nil, err == errStale, err == errPositionLost: // internal: they mean try again
			err = contextError(ctx)
		}
		return withNames(err, a.lock)
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	claim := a.set.kind.claim(a.lock)
	r, err := a.c.leave(left, a.lock, a.draft.UUID, locktxn.ReadHoldersAndTickets(a.c.layout, claim).Then...)
	if err != nil {
		a.giveUpAttempt()
		return a.heldUntil(ctx)
	}
	a.c.leases.giveBack(a.queue.lease)
	a.setHolders(r, locktxn.HolderReads)
	held := a.heldError(left)
	held.Err = contextError(ctx)
	held.Position = a.c.queuePosition(r, locktxn.HolderReads, position, a.holder.UUID)
	return held
}

// heldUntil is heldError for a wait that ends with ctx.
func (a *acquisition) heldUntil(ctx context.Context) *HeldError {
	held := a.heldError(ctx)
	held.Err = contextError(ctx)
	return held
}

// maxLeaves is how often a waiter tries to move the tail back while those before it leave, too.
const maxLeaves = 5

// leave gives up what an attempt has in the queue, if anything, and returns what the operations read.
//
// The tail of a queue keeps newcomers behind the waiters, so a waiter that leaves as the tail moves it back to the
// ticket before its own. If the newest waiter dies instead, another waiter restores the tail when it notices.
func (c *Client) leave(ctx context.Context, lock, uuid string, read ...clientv3.Op) (r etcdretry.Response, err error) {
	for range maxLeaves {
		if r, err = c.retry.Send(ctx, locktxn.Leave(c.layout, lock, uuid, read...)); err != nil || !r.Succeeded {
			return r, err
		}
		before := locktxn.NewestExcept(c.layout, r.Keys(len(read)).Kvs, uuid)
		left, err := c.retry.Send(ctx, locktxn.LeaveAsTail(c.layout, lock, uuid, before))
		switch {
		case err == nil && left.Succeeded:
			return r, nil
		case locktxn.IsNoSpace(err):
			_, err = c.retry.Send(ctx, locktxn.LeaveWithoutPut(c.layout, lock, uuid))
			return r, err
		case err != nil && !locktxn.IsLeaseGone(err):
			return r, err
		}
	}
	_, err = c.retry.Send(ctx, locktxn.LeaveWithoutPut(c.layout, lock, uuid))
	return r, err
}

// queuePosition returns the place of a position in the queue, 1 for the first, from the tickets that operation op read;
// 0 if there are too many to read. The holder's ticket does not count.
func (c *Client) queuePosition(r etcdretry.Response, op int, p locktxn.Position, holder string) int {
	tickets := r.Keys(op)
	if int(tickets.Count) > len(tickets.Kvs) {
		return 0
	}
	position := 1
	for _, kv := range tickets.Kvs {
		if kv.CreateRevision < p.Revision && c.layout.Parse(string(kv.Key)).ID != holder {
			position++
		}
	}
	return position
}
