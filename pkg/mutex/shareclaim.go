package mutex

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// shareClaim claims a share of a lock that several can hold, or all of it.
type shareClaim struct{ a *acquisition }

func (s shareClaim) try(ctx context.Context, b bid, refusals int) (*Lock, error) {
	a := s.a
	claim := s.next(refusals)
	l, r, err := a.commit(ctx, b, claim.Record, locktxn.AcquireShare(a.c.layout, claim, a.draft.UUID, b.fields,
		a.set.barge))
	switch {
	case l != nil || err != nil:
		return l, err
	case a.doubt:
		a.abandon()
	case !a.holders.room(a.set.kind):
		return nil, a.heldError()
	case len(r.Keys(3).Kvs) > 0 && !a.set.barge:
		return a.tryPast(ctx)
	}
	return nil, errRivals
}

func (s shareClaim) tryPast(ctx context.Context, b bid, tail int64) (*Lock, error) {
	a := s.a
	claim := s.next(0)
	l, _, err := a.commit(ctx, b, claim.Record, locktxn.AcquireSharePast(a.c.layout, claim, a.draft.UUID, b.fields,
		tail))
	if l == nil && err == nil {
		a.abandonInDoubt()
		err = errStale // somebody came between
	}
	return l, err
}

// next is what to claim by what is known of the holders. If they left no room when last read, it is what is right
// should nobody hold the lock any more.
//
// Readers that were refused again are spread over the vacant shares, because others claim one at the same time.
func (s shareClaim) next(refusals int) locktxn.Claim {
	a := s.a
	if !a.holders.room(a.set.kind) {
		a.holders = holders{}
	}
	skip := 0
	if refusals > 1 && a.set.kind.name == metadata.HoldsShared {
		skip = rand.N(1 << min(refusals, 6))
	}
	return a.holders.claim(a.lock, a.set.kind, skip)
}

// join gets in line at once where others queue already, or else when there is no room.
//
// An attempt that does not know whether it joined before begins anew. Otherwise a late claim of the same uuid could be
// committed beside the one that it makes when its turn comes.
func (s shareClaim) join(ctx context.Context, b bid) (l *Lock, err error) {
	a := s.a
	if a.queue.lease == nil {
		a.queue.lease = a.c.leases.takeIdle()
	}
	for n := 0; n < maxRivals && (n == 0 || a.holders.room(a.set.kind)); n++ {
		var r etcdretry.Answer
		claim := s.next(n)
		txn := locktxn.AcquireShare(a.c.layout, claim, a.draft.UUID, b.fields, false)
		if a.queue.lease != nil {
			a.queue.ticket = a.newTicket(ctx, b)
			a.c.leases.places.begin(a.queue.lease, a.lock, a.draft.UUID)
			txn = locktxn.EnqueueShare(a.c.layout, claim, a.draft.UUID, b.fields, a.queue.ticket, a.queue.lease.id)
		}
		l, r, err = a.commit(ctx, b, claim.Record, txn)
		if l != nil {
			return l, err
		}
		if err = s.joined(r, err); err != nil || a.queue.position.Revision != 0 {
			return nil, err
		}
		if a.queue.lease == nil && len(r.Keys(3).Kvs) > 0 {
			break // others queue
		}
	}
	if a.queue.lease == nil {
		if a.queue.lease, err = a.c.leases.grant(ctx); err != nil {
			return nil, err
		}
	}
	a.queue.ticket = a.newTicket(ctx, b)
	a.c.leases.places.begin(a.queue.lease, a.lock, a.draft.UUID)
	r, err := a.propose(ctx, locktxn.JoinShare(a.c.layout, a.lock, a.draft.UUID, a.queue.ticket, a.queue.lease.id))
	if err = s.joined(r, err); err != nil {
		return nil, err
	}
	a.meet(r)
	if a.queue.position.Revision == 0 {
		return nil, errPositionLost
	}
	return nil, nil
}

// joined keeps the position in the queue from an answer.
func (s shareClaim) joined(r etcdretry.Answer, err error) error {
	a := s.a
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
	position := locktxn.Position{Lock: a.lock, UUID: a.draft.UUID}
	if position.Revision, a.queue.before = locktxn.Joined(r.TxnResponse); position.Revision != 0 {
		a.queue.position = position
	}
	return nil
}

// ends are those of the lock's own record, of all shares, and of the delays.
func (s shareClaim) ends() []etcdretry.Watched {
	layout := s.a.c.layout
	from, end := layout.Shares(s.a.lock)
	keys := []etcdretry.Watched{
		etcdretry.Deleted(layout.Field(s.a.lock, metadata.FieldUUID)),
		{Key: from, Options: []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithFilterPut()}},
	}
	if s.a.holders.delayed() {
		from, end = layout.DelaysAbout(s.a.lock)
		keys = append(keys, etcdretry.Watched{Key: from,
			Options: []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithFilterPut()}})
	}
	return keys
}

func (s shareClaim) standing() locktxn.Txn {
	return locktxn.ReadStandingShare(s.a.c.layout, s.a.lock)
}

func (s shareClaim) standingOf(r etcdretry.Answer) (holders, int) {
	return s.a.c.holders(s.a.lock, r, 0), 3
}

// keepsTicket is false: a share leaves the queue when it is taken, so that the next waiter can take one beside it.
func (shareClaim) keepsTicket() bool { return false }

func (shareClaim) inBatch() bool { return false }

func (s shareClaim) explain(held *HeldError) {
	k := s.a.set.kind
	held.Kind = k.name
	held.Holders = s.a.holders.all()
	held.Limit = k.limit
	held.Weight = k.weight
	held.Free = s.a.holders.free(k.limit)
	if !s.a.holders.room(k) {
		held.Delay = s.a.holders.lastDelay()
	}
}

// inTheWay are all holders for a writer, the writer for a reader, and for permits those who were there first and have
// enough of them.
func (s shareClaim) inTheWay(of []metadata.Document) (some []metadata.Document) {
	k := s.a.set.kind
	missing := max(k.weight, 1) - k.limit
	for _, d := range of {
		missing += permits(&d, k.limit)
	}
	for _, d := range of {
		whole := d.Name == s.a.lock
		switch {
		case whole, k.name == metadata.HoldsExclusive:
			some = append(some, d)
		case k.name == metadata.HoldsPermits && missing > 0:
			some = append(some, d)
			missing -= permits(&d, k.limit)
		}
	}
	return some
}

func (s shareClaim) known(h holders) locktxn.Known {
	return locktxn.Known{Lock: s.a.lock, Token: h.writer.Token, Delay: h.delayRevision(), Shares: true,
		Revision: h.revision}
}

// cancel learns only by the tombstone which record the attempt may have, and withdraws that after it.
func (s shareClaim) cancel(ctx context.Context, uuid string) error {
	c := s.a.c
	lock := s.a.lock
	r, err := c.cancelAttempt(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.CancelShare(c.layout, lock, uuid, lease)
	}, locktxn.WithdrawShare(c.layout, lock, uuid))
	if r.TxnResponse == nil {
		return err
	}
	h := c.holders(lock, r, 0)
	if mine, ok := h.mine(uuid); ok {
		_, failed := c.retry.Send(ctx, locktxn.Withdraw(c.layout, mine.Name, uuid))
		err = errors.Join(err, failed)
	}
	return err
}

func (s shareClaim) inherit(ctx context.Context, _ bool) (*Lock, error) { return s.checkRoom(ctx) }

func (s shareClaim) advance(ctx context.Context, events []*clientv3.Event) (*Lock, error) {
	a := s.a
	again := len(events) == 0
	ended := false
	own := a.c.layout.Ticket(a.lock, a.draft.UUID)
	for _, e := range events {
		switch key := string(e.Kv.Key); {
		case e.Type != clientv3.EventTypeDelete || e.Kv.ModRevision <= a.seen:
		case key == own && !a.doubt:
			return nil, errPositionLost
		case strings.HasPrefix(key, a.c.layout.Queue(a.lock)):
			// it may also be first now, or hold the lock by a late sending
			again = true
		default:
			a.holders.gone(a.c, a.lock, key)
			ended = true
		}
	}
	switch {
	case again || ended && !a.queue.first:
		return s.checkRoom(ctx)
	case ended:
		return s.takeShare(ctx)
	}
	return nil, nil
}

// checkRoom finds the ticket before this one and the holders, and takes its share when it is its turn.
func (s shareClaim) checkRoom(ctx context.Context) (*Lock, error) {
	a := s.a
	r, err := a.c.retry.Send(ctx, locktxn.ReadAheadShare(a.c.layout, a.queue.position, a.queue.before, a.queue.first))
	switch {
	case err != nil:
		return nil, err
	case !r.Succeeded: // the one before it still is
		a.seen = r.Header.Revision
		if len(r.Keys(0).Kvs) == 0 {
			return nil, errPositionLost
		}
		a.keepTail(ctx, r, 2)
		return nil, nil
	}
	a.meet(r)
	if l, err := s.foundLate(); l != nil || err != nil {
		return l, err
	}
	switch older := r.Keys(5).Kvs; {
	case len(r.Keys(3).Kvs) == 0:
		return nil, errPositionLost
	case len(older) > 0:
		a.queue.before = a.c.layout.Parse(string(older[0].Key)).ID
		a.keepTail(ctx, r, 4)
		return nil, nil
	}
	a.queue.first = true
	a.queue.before = ""
	if !a.holders.room(a.set.kind) {
		a.keepTail(ctx, r, 4)
		return nil, nil
	}
	return s.takeShare(ctx)
}

// foundLate is found for a claim that was made before.
func (s shareClaim) foundLate() (*Lock, error) {
	a := s.a
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
func (s shareClaim) takeShare(ctx context.Context) (*Lock, error) {
	a := s.a
	for n := 0; a.holders.room(a.set.kind); n++ {
		b, err := a.bid()
		if err != nil {
			return nil, err
		}
		claim := s.next(n)
		l, r, err := a.commit(ctx, b, claim.Record, locktxn.TakeShare(a.c.layout, claim, a.queue.position, b.fields))
		switch {
		case l != nil || err != nil:
			return l, err
		case len(r.Keys(3).Kvs) == 0:
			return nil, errPositionLost
		}
		a.keepTail(ctx, r, 4)
		if n >= maxRivals && !etcdretry.Pause(ctx, etcdretry.Delay(n)) { // others come past the queue
			return nil, nil
		}
	}
	return nil, nil
}
