package mutex

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// line is where an acquisition stands in the queue of its lock. The zero line is nowhere.
type line struct {
	lease  *lease // serves this attempt only; may be there before the place
	place  locktxn.Position
	ticket metadata.Ticket

	before string // who is before it; empty when that is nobody or not known
	first  bool   // for certain; nobody ever gets in before it
}

var errPlaceLost = errors.New("the place in the queue was lost")

// queue takes the lock, waiting for its turn.
func (a *acquisition) queue(ctx context.Context, b bid) (l *Lock, err error) {
	for n := 0; ; n++ {
		if l, err = a.join(ctx, b); l == nil && err == nil {
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
		pause(ctx, delay(n))
		if b, err = a.bid(); err != nil {
			return nil, a.explain(err)
		}
	}
}

// join takes the lock or else gets in line, in one request where there is a lease at hand. Who takes locks that nobody
// else wants never asks for one.
func (a *acquisition) join(ctx context.Context, b bid) (*Lock, error) {
	if a.set.kind.shared() {
		return a.joinShare(ctx, b)
	}
	if a.line.lease == nil {
		a.line.lease = a.c.idleLease()
	}
	if a.line.lease == nil {
		l, _, err := a.ask(ctx, b, locktxn.Acquire(a.c.layout, a.lock, a.draft.UUID, b.fields, false))
		if l != nil || err != nil {
			return l, err
		}
		if a.doubt { // a late commit could pass those who are before this waiter, and both would wait for each other
			a.abandon()
		}
		if a.line.lease, err = a.c.newLease(ctx); err != nil {
			return nil, err
		}
		if b, err = a.bid(); err != nil {
			return nil, err
		}
	}
	a.line.ticket = a.ticket(ctx, b)
	l, r, err := a.ask(ctx, b, locktxn.Enqueue(a.c.layout, a.lock, a.draft.UUID, b.fields, a.line.ticket,
		a.line.lease.id))
	switch {
	case locktxn.LeaseGone(err):
		a.leaveLater()
		return nil, errStale
	case l != nil || err != nil:
		return l, err
	}
	place := locktxn.Position{Lock: a.lock, UUID: a.draft.UUID}
	if place.Revision, a.line.before = locktxn.Joined(r.TxnResponse); place.Revision == 0 {
		return nil, errPlaceLost
	}
	a.line.place = place
	return nil, nil
}

// ticket is what others see of this waiter.
func (a *acquisition) ticket(ctx context.Context, b bid) metadata.Ticket {
	t := metadata.Ticket{
		UUID: a.draft.UUID, Owner: a.draft.Owner, Hostname: a.draft.Hostname, PID: int64(a.draft.PID),
		Purpose: a.draft.Purpose,
		Since:   metadata.Time{Time: b.wall},
	}
	if end, ok := ctx.Deadline(); ok {
		t.TimeoutAt = metadata.Time{Time: b.wall.Add(end.Sub(b.start))}
	}
	return t
}

// await waits until it is this acquisition's turn, and takes the lock. It follows one other ticket, or the lock itself
// when it is the first, and its own ticket: who lost that does not wait any more.
func (a *acquisition) await(ctx context.Context) (l *Lock, err error) {
	if a.set.kind.shared() {
		return a.awaitShare(ctx)
	}
	layout := a.c.layout
	for l == nil && err == nil && ctx.Err() == nil {
		before, ahead := a.line.before, layout.Field(a.lock, metadata.FieldUUID)
		if before != "" {
			ahead = layout.Ticket(a.lock, before)
		}
		a.c.follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
			l, err = a.look(ctx, events, ahead)
			return l != nil || err != nil || a.line.before != before
		}, deleted(ahead), deleted(layout.Ticket(a.lock, a.draft.UUID)))
	}
	return l, err
}

// look acts upon what may have happened: deletions of the key ahead or of its own ticket, or, without events, anything.
func (a *acquisition) look(ctx context.Context, events []*clientv3.Event, ahead string) (*Lock, error) {
	if len(events) == 0 {
		return a.lookAhead(ctx)
	}
	for _, e := range events {
		switch {
		case e.Type != clientv3.EventTypeDelete || e.Kv.ModRevision <= a.seen:
		case string(e.Kv.Key) != ahead:
			return nil, errPlaceLost
		case a.line.before == "" && a.line.first, a.line.before != "" && holding(e.PrevKv):
			return a.takeTurn(ctx)
		default: // who was before it gave up or died, others may be before that
			return a.lookAhead(ctx)
		}
	}
	return nil, nil
}

// holding tells whether a ticket bears the mark of a holder: then its deletion means that the lock was handed over.
func holding(ticket *mvccpb.KeyValue) bool {
	if ticket == nil {
		return false
	}
	t, err := protocol.Unmarshal[metadata.Ticket](ticket.Value)
	return err == nil && t.Holding
}

// lookAhead finds out who is before this acquisition, and takes the lock if nobody is and it is free.
func (a *acquisition) lookAhead(ctx context.Context) (*Lock, error) {
	txn := locktxn.LookAhead(a.c.layout, a.line.place, a.line.before)
	if a.line.first {
		txn = locktxn.LookAtLock(a.c.layout, a.line.place)
	}
	r, err := a.c.send(ctx, txn)
	if err != nil {
		return nil, err
	}
	a.seen = r.Header.Revision
	switch older := r.keys(3).Kvs; {
	case len(r.keys(0).Kvs) == 0:
		return nil, errPlaceLost
	case !r.Succeeded: // who was before it still is
		a.keepTail(ctx, r, 2)
		return nil, nil
	case len(older) > 0:
		a.line.before = a.c.layout.Parse(string(older[0].Key)).ID
		a.keepTail(ctx, r, 2)
		return nil, nil
	}
	a.line.first = true
	if holder := r.keys(1).Kvs; len(holder) > 0 && string(holder[0].Value) != a.draft.UUID {
		a.line.before = ""
		a.keepTail(ctx, r, 2)
		return nil, nil
	}
	return a.takeTurn(ctx) // which also finds out that an earlier sending of it got through
}

// takeTurn takes the lock that was handed over, or that the first in the queue found free.
func (a *acquisition) takeTurn(ctx context.Context) (*Lock, error) {
	b, err := a.bid()
	if err != nil {
		return nil, err
	}
	txn := locktxn.TakeTurn(a.c.layout, a.line.place, a.line.before, b.fields, a.line.ticket, a.line.lease.id)
	l, r, err := a.ask(ctx, b, txn)
	switch {
	case l != nil || err != nil:
		return l, err
	case len(r.keys(1).Kvs) == 0 || a.now.Token == 0:
		return nil, errPlaceLost
	}
	// Somebody who does not queue came between, or the ticket of a holder ended before its hold.
	a.line.first = true
	a.line.before = ""
	a.keepTail(ctx, r, 2)
	return nil, nil
}

// leaveLater gives up whatever this attempt has in the queue, in the background, and goes on with a new uuid.
func (a *acquisition) leaveLater() {
	if a.doubt {
		a.abandon()
		return
	}
	if a.line.lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
		a.c.drop(a.line.lease) // and with it what is still under way
	}
	a.line = line{}
	a.draft.UUID = uuid.NewString()
}

// giveUp leaves the queue because ctx ended, and tells who holds the lock and how many are before.
func (a *acquisition) giveUp(ctx context.Context, err error) error {
	place, known := a.line.place, a.now.Name != ""
	if place.Revision == 0 || a.doubt {
		a.leaveLater()
		switch {
		case known:
		case err == nil, err == errStale, err == errPlaceLost: // only said to this package that it should try again
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
	standing := locktxn.Standing
	if a.set.kind.shared() {
		standing = locktxn.StandingShare
	}
	r, err := a.c.leave(left, a.lock, a.draft.UUID, standing(a.c.layout, place).Then...)
	if err != nil {
		a.leaveLater()
		held := a.heldError()
		held.Err = ended(ctx)
		return held
	}
	a.c.giveBack(a.line.lease)
	tickets := 1
	if a.set.kind.shared() {
		tickets = 2
		a.meet(r)
	} else {
		a.now = a.c.record(a.lock, r, 0)
	}
	held := a.heldError()
	held.Position = a.c.position(r, tickets, a.now.UUID)
	held.Err = ended(ctx)
	return held
}
