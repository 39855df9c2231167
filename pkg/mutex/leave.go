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

// giveUp leaves the queue because ctx ended. The error names the holder and has the position.
func (a *acquisition) giveUp(ctx context.Context, err error) error {
	position := a.queue.position
	first := a.queue.first
	known := a.holder.Name != ""
	if position.Revision == 0 || a.doubt {
		a.leaveLater()
		switch {
		case known:
		case err == nil, err == errStale, err == errPositionLost: // meant for this package only: try again
			return a.explain(ended(ctx))
		default:
			return a.explain(err)
		}
		held := a.heldError()
		held.Err = ended(ctx)
		return held
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	r, err := a.c.exits.leave(left, a)
	if err != nil {
		a.leaveLater()
		held := a.heldError()
		held.Err = ended(ctx)
		return held
	}
	a.c.leases.giveBack(a.queue.lease)
	a.meet(r)
	tickets := a.set.kind.claim(a.lock).Reads()
	held := a.heldError()
	held.Position = a.c.standing(r, tickets, position, a.holder.UUID)
	if !first && int(r.Keys(tickets).Count) > locktxn.MaxStanding {
		held.Position = max(held.Position, 2) // nobody ahead was among those that were read
	}
	held.Err = ended(ctx)
	return held
}

// standing is how far ahead in the queue a position was, by the tickets that the operation with this number read. That
// of the holder does not wait. If only some were read, it is an estimate: keys of tickets are in no order.
func (c *Client) standing(r etcdretry.Answer, op int, p locktxn.Position, holder string) int {
	tickets := r.Keys(op)
	unread := int(tickets.Count) - len(tickets.Kvs)
	ahead := 0
	behind := 0
	ownUnread := unread > 0
	for _, kv := range tickets.Kvs {
		switch {
		case kv.CreateRevision == p.Revision:
			ownUnread = false
		case kv.CreateRevision > p.Revision:
			behind++
		case c.layout.Parse(string(kv.Key)).ID != holder:
			ahead++
		}
	}
	if ownUnread {
		unread--
	}
	if ahead > 0 {
		ahead += unread * ahead / (ahead + behind)
	}
	return ahead + 1
}

// keepTail puts the tail back where operation op of an answer found none. It runs again at the next check, so what
// keeps it from that is no error.
func (a *acquisition) keepTail(ctx context.Context, r etcdretry.Answer, op int) {
	if len(r.Keys(op).Kvs) > 0 {
		return
	}
	r, err := a.c.retry.Send(ctx, locktxn.ReadTail(a.c.layout, a.lock))
	if err != nil || len(r.Keys(0).Kvs) > 0 {
		return
	}
	if last := locktxn.Newest(a.c.layout, r.Keys(1).Kvs, ""); last.Revision != 0 {
		_, _ = a.c.retry.Send(ctx, locktxn.RestoreTail(a.c.layout, a.lock, last))
	}
}

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
