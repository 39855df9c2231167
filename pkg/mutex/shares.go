package mutex

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxClaims is how often a share is claimed past others who claim one at the same time, before the queue brings order
// into it.
const maxClaims = 3

// tryShare is try for locks that several can hold.
func (a *acquisition) tryShare(ctx context.Context, b bid) (*Lock, error) {
	for n := 0; ; n++ {
		claim := a.claim(n)
		l, r, err := a.askShare(ctx, b, claim, locktxn.AcquireShare(a.c.layout, claim, a.draft.UUID, b.fields,
			a.set.barge))
		if l == nil && err == nil {
			switch {
			case a.doubt:
				a.abandon()
			case !a.holders.room(a.set.kind):
				return nil, a.heldError()
			case len(r.keys(2).Kvs) > 0 && !a.set.barge:
				l, err = a.trySharePast(ctx)
			}
		}
		switch {
		case l != nil, err != nil && err != errStale:
			return l, err
		case err == errStale || n >= maxClaims:
			pause(ctx, delay(n))
		}
		if b, err = a.bid(); err != nil {
			return nil, err
		}
	}
}

// claim is what to ask for by what is known of the holders. When they leave no room, as long as nobody has looked
// again, it is what is right should nobody hold the lock any more.
//
// Readers that were refused again are spread over the shares that are vacant, because others claim one at the same
// time.
func (a *acquisition) claim(refused int) locktxn.Claim {
	if !a.holders.room(a.set.kind) {
		a.holders = holders{}
	}
	skip := 0
	if refused > 1 && a.set.kind.name == metadata.HoldsShared {
		skip = rand.N(1 << min(refused, 6))
	}
	return a.holders.claim(a.lock, a.set.kind, skip)
}

// trySharePast takes a share for which there is room and that was refused: others queue, or the end of their queue was
// left behind when the last one of them died.
func (a *acquisition) trySharePast(ctx context.Context) (*Lock, error) {
	r, err := a.c.send(ctx, locktxn.Queue(a.c.layout, a.lock))
	if err != nil {
		return nil, err
	}
	tail := r.keys(1).Kvs
	switch n := len(r.keys(0).Kvs); {
	case n > 0:
		held := a.heldError()
		held.Position = n + 1
		return nil, held
	case len(tail) == 0: // the queue is gone
		return nil, errStale
	}
	b, err := a.bid()
	if err != nil {
		return nil, err
	}
	claim := a.claim(0)
	l, _, err := a.askShare(ctx, b, claim, locktxn.AcquireSharePast(a.c.layout, claim, a.draft.UUID, b.fields,
		tail[0].ModRevision))
	if l == nil && err == nil {
		err = errStale // somebody came between
		if a.doubt {
			a.abandon()
		}
	}
	return l, err
}

// askShare sends a transaction that makes the claim or reads the holders, as ask does.
func (a *acquisition) askShare(ctx context.Context, b bid, claim locktxn.Claim,
	txn locktxn.Txn) (*Lock, answer, error) {
	r, err := a.propose(ctx, txn)
	if err != nil {
		return nil, r, err
	}
	if r.Succeeded {
		a.record = claim.Record
		l, err := a.hold(b, r.Header.Revision, a.draft.AutoUnlockAt)
		return l, r, err
	}
	a.meet(r)
	l, err := a.found(b)
	return l, r, err
}

// meet keeps who the holders are, which an answer tells first.
func (a *acquisition) meet(r answer) {
	a.seen = r.Header.Revision
	a.holders = a.c.holders(a.lock, r, 0)
	a.now = a.holders.writer
	if all := a.holders.all(); len(all) > 0 {
		a.now = all[0]
	}
}

// found is the hold of an earlier sending whose answer was lost; nil when there is none.
func (a *acquisition) found(b bid) (*Lock, error) {
	mine, ok := a.holders.mine(a.draft.UUID)
	if !ok {
		return nil, nil
	}
	a.record = mine.Name
	return a.hold(b, mine.Token, mine.AutoUnlockAt)
}

// joinShare takes a share or else gets in line: at once where others queue already, or else when there is no room.
//
// Whoever does not know whether it joined before begins anew. A late claim of the same uuid could otherwise be
// committed beside the one that it makes when its turn comes.
func (a *acquisition) joinShare(ctx context.Context, b bid) (l *Lock, err error) {
	if a.line.lease == nil {
		a.line.lease = a.c.idleLease()
	}
	for n := 0; n < maxClaims && (n == 0 || a.holders.room(a.set.kind)); n++ {
		var r answer
		claim := a.claim(n)
		txn := locktxn.AcquireShare(a.c.layout, claim, a.draft.UUID, b.fields, false)
		if a.line.lease != nil {
			a.line.ticket = a.ticket(ctx, b)
			txn = locktxn.EnqueueShare(a.c.layout, claim, a.draft.UUID, b.fields, a.line.ticket, a.line.lease.id)
		}
		l, r, err = a.askShare(ctx, b, claim, txn)
		if l != nil {
			return l, err
		}
		if err = a.joined(r, err); err != nil || a.line.place.Revision != 0 {
			return nil, err
		}
		if a.line.lease == nil && len(r.keys(2).Kvs) > 0 {
			break // others queue
		}
	}
	if a.line.lease == nil {
		if a.line.lease, err = a.c.newLease(ctx); err != nil {
			return nil, err
		}
	}
	a.line.ticket = a.ticket(ctx, b)
	r, err := a.propose(ctx, locktxn.Join(a.c.layout, a.lock, a.draft.UUID, a.line.ticket, a.line.lease.id))
	if err = a.joined(r, err); err != nil {
		return nil, err
	}
	a.meet(r)
	if a.line.place.Revision == 0 {
		return nil, errPlaceLost
	}
	return nil, nil
}

// joined keeps the place in the queue that an answer tells.
func (a *acquisition) joined(r answer, err error) error {
	switch {
	case locktxn.LeaseGone(err):
		a.leaveLater()
		return errStale
	case err != nil || r.TxnResponse == nil:
		return err
	case a.doubt:
		a.abandon()
		return errStale
	}
	place := locktxn.Position{Lock: a.lock, UUID: a.draft.UUID}
	if place.Revision, a.line.before = locktxn.Joined(r.TxnResponse); place.Revision != 0 {
		a.line.place = place
	}
	return nil
}

// awaitShare waits until it is this acquisition's turn and there is room for it. It follows the ticket before it, or
// all holders when it is the first, and its own ticket.
func (a *acquisition) awaitShare(ctx context.Context) (l *Lock, err error) {
	layout := a.c.layout
	for l == nil && err == nil && ctx.Err() == nil {
		before, follow := a.line.before, []watched{deleted(layout.Ticket(a.lock, a.draft.UUID))}
		if before != "" {
			follow = append(follow, deleted(layout.Ticket(a.lock, before)))
		} else {
			follow = append(follow, a.ends()...)
		}
		a.c.follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
			l, err = a.lookAtShares(ctx, events)
			return l != nil || err != nil || a.line.before != before
		}, follow...)
	}
	return l, err
}

// ends follows the ends of holds: of the lock's own record and, where several can hold it, of all shares.
func (a *acquisition) ends() []watched {
	keys := []watched{deleted(a.c.layout.Field(a.lock, metadata.FieldUUID))}
	if a.set.kind.shared() {
		from, end := a.c.layout.Shares(a.lock)
		keys = append(keys, watched{from, []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithFilterPut()}})
	}
	return keys
}

// lookAtShares acts upon what may have happened: ends of holds, deletions of its own ticket or of the one before it,
// or, without events, anything.
func (a *acquisition) lookAtShares(ctx context.Context, events []*clientv3.Event) (*Lock, error) {
	again := len(events) == 0
	ended := false
	own := a.c.layout.Ticket(a.lock, a.draft.UUID)
	for _, e := range events {
		switch key := string(e.Kv.Key); {
		case e.Type != clientv3.EventTypeDelete || e.Kv.ModRevision <= a.seen:
		case key == own && !a.doubt:
			return nil, errPlaceLost
		case strings.HasPrefix(key, a.c.layout.Queue(a.lock)):
			// it may also be first now, or hold the lock by a late sending
			again = true
		default:
			a.holders.gone(a.c, a.lock, key)
			ended = true
		}
	}
	switch {
	case again || ended && !a.line.first:
		return a.lookForRoom(ctx)
	case ended:
		return a.takeShare(ctx)
	}
	return nil, nil
}

// lookForRoom finds out who is before this acquisition and who holds the lock, and takes its share when it is its turn.
func (a *acquisition) lookForRoom(ctx context.Context) (*Lock, error) {
	r, err := a.c.send(ctx, locktxn.LookAtShares(a.c.layout, a.line.place, a.line.before, a.line.first))
	switch {
	case err != nil:
		return nil, err
	case !r.Succeeded: // who was before it still is
		a.seen = r.Header.Revision
		if len(r.keys(0).Kvs) == 0 {
			return nil, errPlaceLost
		}
		a.keepTail(ctx, r, 2)
		return nil, nil
	}
	a.meet(r)
	if l, err := a.foundLate(); l != nil || err != nil {
		return l, err
	}
	switch older := r.keys(4).Kvs; {
	case len(r.keys(2).Kvs) == 0:
		return nil, errPlaceLost
	case len(older) > 0:
		a.line.before = a.c.layout.Parse(string(older[0].Key)).ID
		a.keepTail(ctx, r, 3)
		return nil, nil
	}
	a.line.first = true
	a.line.before = ""
	if !a.holders.room(a.set.kind) {
		a.keepTail(ctx, r, 3)
		return nil, nil
	}
	return a.takeShare(ctx)
}

// foundLate is found, of a claim that was made before.
func (a *acquisition) foundLate() (*Lock, error) {
	if !a.doubt {
		return nil, nil
	}
	b, err := a.bid()
	if err != nil {
		return nil, err
	}
	return a.found(b)
}

// takeShare takes a share for the first in the queue, if there is room.
func (a *acquisition) takeShare(ctx context.Context) (*Lock, error) {
	for n := 0; a.holders.room(a.set.kind); n++ {
		b, err := a.bid()
		if err != nil {
			return nil, err
		}
		claim := a.claim(n)
		l, r, err := a.askShare(ctx, b, claim, locktxn.TakeShare(a.c.layout, claim, a.line.place, b.fields))
		switch {
		case l != nil || err != nil:
			return l, err
		case len(r.keys(2).Kvs) == 0:
			return nil, errPlaceLost
		}
		a.keepTail(ctx, r, 3)
		if n >= maxClaims && !pause(ctx, delay(n)) { // others come past the queue
			return nil, nil
		}
	}
	return nil, nil
}

// cancelShareLater is cancelLater for locks that several can hold. Of which share the record is does not matter.
func (c *Client) cancelShareLater(lock, uuid string) {
	c.later(chore{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL),
		do: func(ctx context.Context) error {
			return c.cancelShare(ctx, lock, uuid)
		}})
}

func (c *Client) cancelShare(ctx context.Context, lock, uuid string) error {
	lease, err := c.markLease(ctx, &c.marks)
	if err != nil && !locktxn.NoSpace(err) {
		return err
	}
	marked := err
	var r answer
	if marked == nil {
		r, marked = c.send(ctx, locktxn.CancelShare(c.layout, lock, uuid, lease))
	}
	switch {
	case locktxn.LeaseGone(marked):
		c.marks.forget(lease)
		return marked
	case locktxn.NoSpace(marked):
		// no mark can be written. What was acquired with the last space is at least given back
		r, err = c.send(ctx, locktxn.WithdrawShare(c.layout, lock, uuid))
	default:
		err = marked
	}
	if err != nil {
		return err
	}
	h := c.holders(lock, r, 0)
	if mine, ok := h.mine(uuid); ok {
		_, err = c.send(ctx, locktxn.Withdraw(c.layout, mine.Name, uuid))
	}
	return errors.Join(marked, err)
}
