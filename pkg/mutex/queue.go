package mutex

import (
	"context"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waiterRecheck is how often a waiter reads the queue while its watch is silent: a safety net, not how it learns that
// the lock is free.
const waiterRecheck = 10 * time.Second

// queueUp waits for the turn of this acquisition and takes the lock.
func (a *acquisition) queueUp(ctx context.Context, p proposal) (l *Lock, err error) {
	for n := 0; ; n++ {
		if l, err = a.lockOrQueue(ctx, p); l == nil && err == nil {
			stop := a.reportWait(ctx)
			for l == nil && err == nil && ctx.Err() == nil {
				l, err = a.follow(ctx)
			}
			stop()
		}
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, a.giveUp(ctx, err)
		case err == errPositionLost:
			a.giveUpAttempt()
		case err != errStale:
			a.giveUpAttempt()
			return nil, withNames(err, a.lock)
		}
		etcdretry.Sleep(ctx, etcdretry.Backoff(n))
		p = a.newProposal()
	}
}

// lockOrQueue takes the lock or joins its queue. If both results are nil, the acquisition is in the queue.
//
// If an idle lease exists, one request does either. A client whose locks nobody else wants never gets a lease.
func (a *acquisition) lockOrQueue(ctx context.Context, p proposal) (*Lock, error) {
	if a.queue.lease == nil {
		a.queue.lease = a.c.leases.takeIdle()
	}
	for n := 0; n == 0 || n < maxQuickRetries && a.holders.hasRoom(a.set.kind); n++ {
		l, queued, err := a.claimOrQueue(ctx, p, n)
		if l != nil || err != nil || a.queue.position.Revision != 0 {
			return l, err
		}
		if queued {
			break
		}
	}
	return nil, a.joinQueue(ctx, p)
}

// claimOrQueue claims the lock and, if it has a lease, joins the queue otherwise. refusals counts the earlier refusals.
// Without a lease, queued reports whether to get one: others queue, there is nothing to share, or the outcome of a
// request is indeterminate.
func (a *acquisition) claimOrQueue(ctx context.Context, p proposal, refusals int) (l *Lock, queued bool, err error) {
	claim := a.nextClaim(refusals)
	if a.queue.lease == nil {
		l, r, err := a.commit(ctx, p, claim, locktxn.Acquire(a.c.layout, claim, a.draft.UUID, p.fields, false))
		if l != nil || err != nil {
			return l, false, err
		}
		queued = a.indeterminate || len(r.Keys(locktxn.HolderReads).Kvs) > 0
		// A late commit could overtake the waiters ahead of this one, and they would wait for each other.
		a.cancelIfIndeterminate()
		return nil, queued, nil
	}
	a.prepareTicket(ctx, p)
	l, r, err := a.commit(ctx, p, claim, locktxn.Enqueue(a.c.layout, claim, a.draft.UUID, p.fields, a.queue.ticket,
		a.queue.lease.id))
	if l == nil {
		err = a.storePosition(r, err)
	}
	return l, false, err
}

// joinQueue joins the queue, whether or not the lock is held.
func (a *acquisition) joinQueue(ctx context.Context, p proposal) (err error) {
	if a.queue.lease == nil {
		if a.queue.lease, err = a.c.leases.grant(ctx); err != nil {
			return err
		}
	}
	a.prepareTicket(ctx, p)
	claim := a.set.kind.claim(a.lock)
	r, err := a.sendProposal(ctx, locktxn.Join(a.c.layout, claim, a.draft.UUID, a.queue.ticket, a.queue.lease.id))
	if err = a.storePosition(r, err); err != nil {
		return err
	}
	a.setHolders(r, claim.WaiterReads())
	if a.queue.position.Revision == 0 {
		return errPositionLost
	}
	return nil
}

// prepareTicket makes the ticket that others see, before any request that may put it.
func (a *acquisition) prepareTicket(ctx context.Context, p proposal) {
	t := metadata.Ticket{UUID: a.draft.UUID, Identity: a.draft.Identity, Since: metadata.Time{Time: a.began},
		Under: a.under()}
	if end, ok := ctx.Deadline(); ok {
		t.TimeoutAt = metadata.Time{Time: p.wall.Add(end.Sub(p.monotonic))}
	}
	a.queue.ticket = t
}

// under returns the uuids of the holds under which the call is made: those of the environment, and of its context.
func (a *acquisition) under() string {
	var outer []string
	for l := a.outer; l != nil; l = l.outer {
		outer = append(outer, l.root().held.UUID)
	}
	return protocol.Under(os.Getenv, outer...)
}

// storePosition stores the position in the queue from an answer.
//
// An attempt that does not know whether an earlier request joined starts over. Otherwise a late claim with the same
// uuid could be committed besides the one that it makes when its turn comes.
func (a *acquisition) storePosition(r etcdretry.Response, err error) error {
	switch {
	case locktxn.IsLeaseGone(err):
		a.giveUpAttempt()
		return errStale
	case err != nil || r.TxnResponse == nil:
		return err
	case a.indeterminate:
		a.cancelAttempt()
		return errStale
	}
	position := locktxn.Position{Lock: a.lock, UUID: a.draft.UUID}
	if position.Revision, a.queue.before = locktxn.JoinResult(r.TxnResponse); position.Revision != 0 {
		a.queue.position = position
	}
	return nil
}

// follow watches the ticket ahead or, if this one is the first, the ends of holds. Its own ticket, without which it is
// no longer in the queue, ends with its lease, so it is watched once the lease is no longer kept alive. If another
// client deletes the ticket, the next look at the queue finds that: watching for it would double the cost of each wait.
func (a *acquisition) follow(ctx context.Context) (l *Lock, err error) {
	layout := a.c.layout
	before := a.queue.before
	followed := a.endKeys()
	var keys []etcdretry.WatchTarget
	if before != "" {
		keys = append(keys, etcdretry.DeletionsOf(layout.Ticket(a.lock, before)))
	} else {
		keys = followed.targets(layout, a.lock)
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	if kept := a.queue.lease.kept; kept.Err() == nil {
		defer context.AfterFunc(kept, cancel)()
	} else {
		keys = append(keys, etcdretry.DeletionsOf(layout.Ticket(a.lock, a.draft.UUID)))
	}
	a.c.retry.Follow(watch, waiterRecheck, func(events []*clientv3.Event) bool {
		l, err = a.advance(ctx, events)
		return l != nil || err != nil || a.queue.before != before || a.endKeys() != followed
	}, keys...)
	return l, err
}

// advance acts on events of the keys that a waiter follows or, without events, looks at the queue. If both results are
// nil, the wait continues.
func (a *acquisition) advance(ctx context.Context, events []*clientv3.Event) (*Lock, error) {
	look := len(events) == 0
	ended := false
	layout := a.c.layout
	own := layout.Ticket(a.lock, a.draft.UUID)
	for _, e := range events {
		switch key := string(e.Kv.Key); {
		case e.Type != clientv3.EventTypeDelete || e.Kv.ModRevision <= a.seen:
		case key == own && !a.indeterminate:
			return nil, errPositionLost
		case !strings.HasPrefix(key, layout.Queue(a.lock)):
			a.holders.removeEnded(layout, a.lock, key)
			ended = true
		case isHolding(e.PrevKv) && !a.set.kind.shared(): // the lock was handed over
			a.holders = holders{}
			a.queue.first = true
			ended = true
		default: // the waiter ahead gave up, died, or took a share; or a late request of the turn was committed
			look = true
		}
	}
	switch {
	case look || ended && !a.queue.first:
		return a.lookAtQueue(ctx)
	case ended:
		return a.takeTurn(ctx)
	}
	return nil, nil
}

// isHolding reports whether a ticket is marked as a holder's: then its deletion means that the lock was handed over.
func isHolding(ticket *mvccpb.KeyValue) bool {
	if ticket == nil {
		return false
	}
	t, err := protocol.Unmarshal[metadata.Ticket](ticket.Value)
	return err == nil && t.Holding
}

// lookAtQueue finds the ticket before this one and the holders, and takes the lock if its turn has come.
func (a *acquisition) lookAtQueue(ctx context.Context) (*Lock, error) {
	claim := a.set.kind.claim(a.lock)
	r, err := a.c.retry.Send(ctx,
		locktxn.ReadPosition(a.c.layout, claim, a.queue.position, a.queue.before, a.queue.first))
	switch {
	case err != nil:
		return nil, err
	case !r.Succeeded: // the ticket before it is still there
		a.seen = r.Header.Revision
		if len(r.Keys(0).Kvs) == 0 {
			return nil, errPositionLost
		}
		a.keepTail(ctx, r, 1)
		return nil, nil
	}
	a.setHolders(r, claim.WaiterReads())
	if _, held := a.holders.byUUID(a.draft.UUID); held { // by an earlier claim
		return a.committedHold(a.newProposal())
	}
	own := claim.WaiterReads()
	tail := own + 1
	switch older := r.Keys(tail + 1).Kvs; {
	case len(r.Keys(own).Kvs) == 0:
		return nil, errPositionLost
	case len(older) > 0:
		a.queue.before = a.c.layout.Parse(string(older[0].Key)).ID
		a.keepTail(ctx, r, tail)
		return nil, nil
	}
	a.queue.first = true
	a.queue.before = ""
	if !a.holders.hasRoom(a.set.kind) {
		a.keepTail(ctx, r, tail)
	}
	return a.takeTurn(ctx)
}

// takeTurn takes the lock for the first in the queue, if there is room.
func (a *acquisition) takeTurn(ctx context.Context) (*Lock, error) {
	for n := 0; a.holders.hasRoom(a.set.kind); n++ {
		p := a.newProposal()
		claim := a.nextClaim(n)
		l, r, err := a.commit(ctx, p, claim, locktxn.AcquireInTurn(a.c.layout, claim, a.queue.position, a.queue.before,
			p.fields, a.queue.ticket, a.queue.lease.id))
		const own = locktxn.HolderReads
		switch {
		case l != nil || err != nil:
			return l, err
		case len(r.Keys(own).Kvs) == 0:
			return nil, errPositionLost
		}
		// There is a lock delay, or another client took the lock past the queue, or a holder's ticket ended before its
		// hold.
		a.queue.before = ""
		a.keepTail(ctx, r, own+1)
		if n >= maxQuickRetries && !etcdretry.Sleep(ctx, etcdretry.Backoff(n)) {
			return nil, nil
		}
	}
	a.warnOverdue(ctx)
	return nil, nil
}

// keepTail restores the tail if operation op of an answer found none. It ignores errors, because it runs again at the
// next check.
func (a *acquisition) keepTail(ctx context.Context, r etcdretry.Response, op int) {
	if len(r.Keys(op).Kvs) > 0 {
		return
	}
	r, err := a.c.retry.Send(ctx, locktxn.ReadTail(a.c.layout, a.lock))
	if err != nil || len(r.Keys(0).Kvs) > 0 {
		return
	}
	if last := locktxn.NewestExcept(a.c.layout, r.Keys(1).Kvs, ""); last.Revision != 0 {
		_, _ = a.c.retry.Send(ctx, locktxn.RestoreTail(a.c.layout, a.lock, last))
	}
}
