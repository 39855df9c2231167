package mutex

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waiterRecheck is how often a waiter reads the queue although its watch is silent: a safety net, not the way in which
// it learns that the lock is free.
const waiterRecheck = 10 * time.Second

var errPositionLost = errors.New("the position in the queue was lost")

// queueUp takes the lock, waiting for its turn.
func (a *acquisition) queueUp(ctx context.Context, b bid) (l *Lock, err error) {
	for n := 0; ; n++ {
		if l, err = a.claimer.join(ctx, b); l == nil && err == nil {
			stop := a.report(ctx)
			l, err = a.await(ctx)
			stop()
		}
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, a.giveUp(ctx, err)
		case err == errPositionLost:
			a.leaveLater()
		case err != errStale:
			a.leaveLater()
			return nil, a.explain(err)
		}
		etcdretry.Pause(ctx, etcdretry.Delay(n))
		if b, err = a.bid(); err != nil {
			return nil, a.explain(err)
		}
	}
}

// await waits for the turn of this acquisition, and takes the lock.
func (a *acquisition) await(ctx context.Context) (l *Lock, err error) {
	for l == nil && err == nil && ctx.Err() == nil {
		if ahead := a.c.leases.places.of(a.queue.before); ahead != nil && a.queue.lease.kept.Err() == nil {
			l, err = a.awaitOwn(ctx, ahead)
		} else {
			l, err = a.follow(ctx)
		}
	}
	return l, err
}

// awaitOwn waits for the end of the ticket ahead, which is this client's own.
func (a *acquisition) awaitOwn(ctx context.Context, ahead *place) (*Lock, error) {
	tick := time.NewTimer(etcdretry.Jitter(waiterRecheck))
	defer tick.Stop()
	releasing := ahead.releasing
	if a.queue.refusedAfter == ahead.uuid {
		releasing = nil
	}
	select {
	case <-ctx.Done():
		return nil, nil
	case <-releasing:
		return a.awaitRelease(ctx, ahead)
	case <-ahead.ended:
		switch {
		case ahead.handed:
			return a.claimer.inherit(ctx, false)
		case ahead.first:
			a.queue.first = true
		case ahead.before != "":
			a.queue.before = ahead.before
			return nil, nil
		}
	case <-a.queue.lease.kept.Done():
	case <-tick.C:
	}
	return a.claimer.advance(ctx, nil)
}

// awaitRelease has the turn follow a release of this client's own without waiting for the answer, so that both may come
// with one commit of etcd. If the turn arrives first, it is refused, and comes again after the answer.
func (a *acquisition) awaitRelease(ctx context.Context, ahead *place) (*Lock, error) {
	select {
	case <-ctx.Done():
		return nil, nil
	case <-ahead.ended:
		return nil, nil
	case <-time.After(a.c.leases.places.headStart()):
	}
	l, err := a.claimer.inherit(ctx, true)
	refused := l == nil && err == nil
	if refused {
		a.queue.refusedAfter = ahead.uuid
	}
	a.c.leases.places.followed(refused)
	return l, err
}

// follow watches the ticket ahead, or the ends of holds if this one is the first. Its own ticket, without which it is
// no longer in the queue, ends with its lease: it is watched when that is not kept alive any more. That somebody else
// deleted it is found by the next look at the queue, as a watch for it would cost each wait as much as the other one.
func (a *acquisition) follow(ctx context.Context) (l *Lock, err error) {
	layout := a.c.layout
	before := a.queue.before
	delayed := a.holders.delayed() // is followed, too
	var keys []etcdretry.Watched
	if before != "" {
		keys = append(keys, etcdretry.Deleted(layout.Ticket(a.lock, before)))
	} else {
		keys = a.claimer.ends()
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	if kept := a.queue.lease.kept; kept.Err() == nil {
		defer context.AfterFunc(kept, cancel)()
	} else {
		keys = append(keys, etcdretry.Deleted(layout.Ticket(a.lock, a.draft.UUID)))
	}
	a.c.retry.Follow(watch, waiterRecheck, func(events []*clientv3.Event) bool {
		l, err = a.claimer.advance(ctx, events)
		return l != nil || err != nil || a.queue.before != before || a.holders.delayed() != delayed
	}, keys...)
	return l, err
}

// newTicket returns what others see of this waiter.
func (a *acquisition) newTicket(ctx context.Context, b bid) metadata.Ticket {
	t := metadata.Ticket{
		UUID: a.draft.UUID, Owner: a.draft.Owner, Hostname: a.draft.Hostname, PID: int64(a.draft.PID),
		Purpose: a.draft.Purpose,
		Since:   metadata.Time{Time: b.wall},
	}
	if end, ok := ctx.Deadline(); ok {
		t.TimeoutAt = metadata.Time{Time: b.wall.Add(end.Sub(b.monotonic))}
	}
	return t
}

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
	a.c.leases.places.bequeath(a.queue.lease, a.queue.before, a.queue.first)
	r, err := a.c.exits.leave(left, a)
	if err != nil {
		a.leaveLater()
		held := a.heldError()
		held.Err = ended(ctx)
		return held
	}
	a.c.leases.giveBack(a.queue.lease)
	a.meet(r)
	_, tickets := a.claimer.standingOf(r)
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

// barge takes the lock as soon as it is free, whoever else waits for it.
func (a *acquisition) barge(ctx context.Context, b bid) (*Lock, error) {
	l, err := a.try(ctx, b)
	held, isHeld := errors.AsType[*HeldError](err)
	if !isHeld {
		return l, a.explain(err)
	}
	defer a.report(ctx)()
	for isHeld && ctx.Err() == nil {
		delayed := a.holders.delayed() // is followed, too
		a.c.retry.Follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
			if old(events, a.seen) {
				return false
			}
			var b bid
			if b, err = a.bid(); err == nil {
				l, err = a.try(ctx, b)
			}
			var newer *HeldError
			if newer, isHeld = errors.AsType[*HeldError](err); isHeld {
				held = newer
			}
			return !isHeld || a.holders.delayed() != delayed
		}, a.claimer.ends()...)
	}
	switch {
	case l != nil:
		return l, nil
	case ctx.Err() != nil:
		held.Err = ended(ctx)
		return nil, held
	}
	return nil, a.explain(err)
}

// old reports whether the last read was newer than all of the events.
func old(events []*clientv3.Event, seen int64) bool {
	return len(events) > 0 && events[len(events)-1].Kv.ModRevision <= seen
}
