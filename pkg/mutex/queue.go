package mutex

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waiterRecheck is how often a waiter asks again although its watch is silent: a safety net, not the way it learns that
// the lock is free.
const waiterRecheck = 10 * time.Second

// queuePlace is where an acquisition stands in the queue of its lock. The zero queuePlace is nowhere.
type queuePlace struct {
	lease  *lease // serves this attempt only; may be there before the place
	place  locktxn.Position
	ticket metadata.Ticket

	before string // uuid of the ticket before it; empty when there is none or it is not known
	first  bool   // for certain; no ticket ever gets in before it
}

var errPlaceLost = errors.New("the place in the queue was lost")

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
		case err == errPlaceLost:
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

// newTicket is what others see of this waiter.
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

// await waits until it is this acquisition's turn, and takes the lock. It follows its own ticket, without which it does
// not wait any more, and the one before it, or the ends of holds when it is the first.
func (a *acquisition) await(ctx context.Context) (l *Lock, err error) {
	layout := a.c.layout
	for l == nil && err == nil && ctx.Err() == nil {
		before := a.queue.before
		keys := []etcdretry.Watched{etcdretry.Deleted(layout.Ticket(a.lock, a.draft.UUID))}
		if before != "" {
			keys = append(keys, etcdretry.Deleted(layout.Ticket(a.lock, before)))
		} else {
			keys = append(keys, a.claimer.ends()...)
		}
		a.c.retry.Follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
			l, err = a.claimer.advance(ctx, events)
			return l != nil || err != nil || a.queue.before != before
		}, keys...)
	}
	return l, err
}

// leaveLater gives up whatever this attempt has in the queue, in the background, and goes on with a new uuid.
func (a *acquisition) leaveLater() {
	if a.doubt {
		a.abandon()
		return
	}
	if a.queue.lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
		a.c.drop(a.queue.lease) // and with it what is still under way
	}
	a.queue = queuePlace{}
	a.draft.UUID = uuid.NewString()
}

// giveUp leaves the queue because ctx ended. The error has the holder and the place.
func (a *acquisition) giveUp(ctx context.Context, err error) error {
	place, known := a.queue.place, a.holder.Name != ""
	if place.Revision == 0 || a.doubt {
		a.leaveLater()
		switch {
		case known:
		case err == nil, err == errStale, err == errPlaceLost: // meant for this package only: try again
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
	r, err := a.c.leave(left, a.lock, a.draft.UUID, a.claimer.standing(place).Then...)
	if err != nil {
		a.leaveLater()
		held := a.heldError()
		held.Err = ended(ctx)
		return held
	}
	a.c.giveBack(a.queue.lease)
	a.meet(r)
	_, tickets := a.claimer.standingOf(r)
	held := a.heldError()
	held.Position = a.c.position(r, tickets, a.holder.UUID)
	held.Err = ended(ctx)
	return held
}
