package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Unlock ends the handle's context and releases the lock. It takes no context, because a lock must be released however
// the work ended: it tries for [Options].RequestTimeout, and then continues in the background.
//
// nil means that the lock was held until now and is free. A [*LostError] means that it had been lost before: the work
// may have run while another client held the lock. Calling Unlock again does nothing and returns the same.
func (l *Lock) Unlock() error {
	switch {
	case l.hasNoHold():
		return errNoHold
	case l.forGroup:
		defer l.cancel(ErrUnlocked)
		return unlockAll(l.group.locks)
	}
	l.unlocking.once.Do(func() { l.unlocking.err = l.endHandle() })
	return l.unlocking.err
}

func unlockAll(locks []*Lock) error { return each(locks, (*Lock).Unlock) }

// endHandle ends one handle of the hold, and releases the hold with the last one.
func (l *Lock) endHandle() error {
	hold := l.root()
	if l != hold {
		l.cancel(ErrUnlocked)
	}
	hold.mu.Lock()
	if l == hold {
		hold.reentry.released = true
	} else {
		hold.reentry.count--
	}
	last := hold.reentry.released && hold.reentry.count == 0
	hold.mu.Unlock()
	if !last {
		if lost, isLost := hold.err().(*LostError); isLost {
			return lost
		}
		return nil
	}
	return hold.release()
}

func (l *Lock) release() (err error) {
	if l.endWith(ErrUnlocked) {
		defer func() { l.notifyReleased(err) }()
	}
	if l.err() == ErrDetached {
		return nil
	}
	if lost, isLost := l.err().(*LostError); isLost && lost.Certain {
		return lost
	}
	end := time.Now().Add(l.c.opts.RequestTimeout)
	r, settled, err := l.sendRelease()
	l.freeLease(err == nil && r.Succeeded)
	if !settled {
		l.cancelAcquisition()
	}
	if err != nil {
		if r.Indeterminate && settled {
			l.releaseLater()
		}
		return fmt.Errorf("unlock %q: %w; unless the release succeeds later, it is auto-unlocked when its time is up",
			l.held.Lock, err)
	}
	if r.Succeeded {
		return nil
	}
	return l.notReleased(end, r)
}

func (l *Lock) releaseTxn() locktxn.Txn {
	if l.origin.lease != nil || l.origin.adopted && metadata.IsUUID(l.held.UUID) {
		return locktxn.HandOver(l.c.layout, l.held)
	}
	txn := locktxn.Release(l.c.layout, l.held)
	txn.OnlyRecord = l.held.Lock
	return txn
}

// sendRelease releases the hold. If a request of its acquisition may still be in flight, it prevents its commit:
// settled reports that it did, or did not have to.
func (l *Lock) sendRelease() (r etcdretry.Response, settled bool, err error) {
	if l.origin.cancel != nil {
		ctx, cancel := context.WithTimeout(context.Background(), l.c.opts.RequestTimeout)
		defer cancel()
		r, err = l.c.tombstones.send(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
			return locktxn.ReleaseIndeterminate(l.c.layout, l.wanted, l.held, lease)
		})
		if !locktxn.IsNoSpace(err) { // else no tombstone can be written
			return r, err == nil, err
		}
	}
	r, err = l.c.retry.SendFor(context.Background(), l.c.opts.RequestTimeout, l.releaseTxn())
	return r, l.origin.cancel == nil, err
}

func (l *Lock) freeLease(definite bool) {
	switch {
	case l.origin.lease == nil:
	case definite && l.origin.cancel == nil:
		l.c.leases.giveBack(l.origin.lease)
	default:
		l.c.leases.drop(l.origin.lease)
	}
}

// notReleased explains why there was nothing to release. If an earlier request went unanswered, most likely that one
// was committed: then no ending is recorded, and it is not an error. But notReleased never says that the lock was held
// until now to a holder whose time had already run out, or if the ending cannot be read.
func (l *Lock) notReleased(end time.Time, r etcdretry.Response) error {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	lost, err := l.verify(ctx)
	before, ranOut := l.err().(*LostError)
	switch {
	case err != nil && r.Indeterminate:
		return fmt.Errorf("unlock %q: it is free, but whether it was held until now is not known: %w", l.held.Lock, err)
	case err != nil || lost == nil:
		lost = l.lostError(err)
	}
	switch {
	case !r.Indeterminate || lost.Ending != nil:
		return lost
	case ranOut:
		return before
	}
	return nil
}

// releaseLater retries the release in the background, for as long as the lock would be held.
func (l *Lock) releaseLater() {
	l.c.cleanups.later(l.held.Lock, l.held.UUID, l.set.autoUnlockAfter, func(ctx context.Context) error {
		_, err := l.c.retry.Send(ctx, l.releaseTxn())
		return err
	})
}

// beginRelease keeps the watch from mistaking the release for a loss, until done is called.
func (l *Lock) beginRelease() (done func()) {
	ended := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlocking.underWay = ended
	return func() { close(ended) }
}

// releasedMeanwhile waits for a release that is under way and reports whether it released the hold.
func (l *Lock) releasedMeanwhile() bool {
	l.mu.Lock()
	leaving := l.unlocking.underWay
	l.mu.Unlock()
	if leaving != nil {
		<-leaving
	}
	return l.err() != nil
}

func (l *Lock) notifyReleased(err error) {
	notify(l.c.opts.Hooks.ReleaseEnded,
		ReleaseEnded{Lock: l, Result: resultOf(err, ResultReleased), HoldTime: time.Since(l.began.monotonic), Err: err})
}

func resultOf(err error, success Result) Result {
	switch {
	case err == nil:
		return success
	case errors.Is(err, ErrNotHeld):
		return ResultLost
	}
	return ResultError
}
