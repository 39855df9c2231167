package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// joint is the taking of one lock or several in one transaction: all or none of them, together with the caller's own
// conditions and writes. It never waits.
//
// What an acquisition alone may leave in doubt this one must not: a late commit would do the caller's writes again, or
// take some locks when others were given back. So a sending without an answer is sealed before anything is said about
// it.
type joint struct {
	c     *Client
	parts []*acquisition
	bids  []bid
	tails []int64
	only  []clientv3.Cmp
	with  []clientv3.Op
	own   []clientv3.Op // of this package, which may write below the prefix
}

// opsOfPart is how much of a transaction one lock takes at most: the keys of its record and the end of its queue. One
// more has to be left for what tells of each condition whether it holds: etcd counts what is nested on top.
const opsOfPart = 5

// try asks for the locks until the answer is definite.
func (j *joint) try(ctx context.Context) ([]*Lock, error) {
	if err := j.c.checkWrites(j.only, j.with, locktxn.MaxOps-1-len(j.own)-opsOfPart*len(j.parts)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.c.opts.RequestTimeout)
	defer cancel()
	j.tails = make([]int64, len(j.parts))
	for n := 0; ; n++ {
		locks, err := j.attempt(ctx)
		if err != errStale {
			return locks, err
		}
		if !pause(ctx, delay(n)) {
			return nil, ended(ctx)
		}
		for _, a := range j.parts {
			a.draft.UUID = uuid.NewString()
		}
	}
}

// attempt makes one bid. [errStale] asks for another.
func (j *joint) attempt(ctx context.Context) ([]*Lock, error) {
	if err := j.bid(); err != nil {
		return nil, err
	}
	txn := locktxn.Batch(j.c.layout, j.sent(), j.only, slices.Concat(j.with, j.own))
	if err := checkSize(txn); err != nil {
		return nil, err
	}
	fresh, cancel := context.WithTimeout(ctx, j.parts[0].set.autoUnlockAfter/3)
	defer cancel()
	r, err := j.c.send(fresh, txn)
	switch {
	case r.doubt:
		return j.settle(ctx, r, err)
	case err != nil && fresh.Err() != nil && ctx.Err() == nil:
		return nil, errStale
	case err != nil:
		return nil, err
	case r.Succeeded:
		return j.hold(func(int) (int64, metadata.Document) { return r.Header.Revision, metadata.Document{} })
	}
	if len(j.held(r)) > 0 { // etcd's client sent it twice by itself
		return j.settle(ctx, r, nil)
	}
	return nil, j.refusal(ctx, r)
}

// bid makes the records anew.
func (j *joint) bid() error {
	j.bids = j.bids[:0]
	for _, a := range j.parts {
		b, err := a.bid()
		if err != nil {
			return err
		}
		j.bids = append(j.bids, b)
	}
	return nil
}

func (j *joint) sent() []locktxn.BatchLock {
	parts := make([]locktxn.BatchLock, len(j.parts))
	for i, a := range j.parts {
		parts[i] = locktxn.BatchLock{Lock: a.lock, UUID: a.draft.UUID, Fields: j.bids[i].fields, Barge: a.set.barge,
			Tail: j.tails[i]}
	}
	return parts
}

// settle ends the doubt about sendings without an answer: no late one is committed any more, and the locks are held or
// not. r and err are what came of the sendings.
func (j *joint) settle(ctx context.Context, r answer, err error) ([]*Lock, error) {
	s, unsettled := j.c.sendMarked(ctx, &j.c.marks, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.Settle(j.c.layout, j.sent(), lease)
	})
	if unsettled != nil {
		for _, a := range j.parts {
			a.c.cancelLater(a.lock, a.draft.UUID)
		}
		if err == nil {
			err = unsettled
		}
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if mine := j.held(s); len(mine) == len(j.parts) {
		return j.hold(func(i int) (int64, metadata.Document) {
			now := j.c.record(j.parts[i].lock, s, i)
			return now.Token, now
		})
	} else if lost := j.lostBefore(s, mine, r.TxnResponse != nil && r.Succeeded); lost != nil {
		j.withdraw(ctx, mine)
		return nil, lost
	}
	switch {
	case err == nil:
		return nil, j.refusal(ctx, r)
	case ctx.Err() == nil && !locktxn.Refused(err) && !locktxn.NoSpace(err):
		return nil, errStale
	}
	return nil, err
}

// held are the locks that this attempt holds, by what the operations from the first one on read.
func (j *joint) held(r answer) (mine []*acquisition) {
	for i, a := range j.parts {
		if now := j.c.record(a.lock, r, i); now.Token != 0 && now.UUID == a.draft.UUID {
			mine = append(mine, a)
		}
	}
	return mine
}

// lostBefore tells that the locks were taken, and one of them taken away again, before this process heard of it. These
// are still there.
func (j *joint) lostBefore(s answer, mine []*acquisition, wasHeld bool) error {
	for i, a := range j.parts {
		ending := j.c.ending(s, len(j.parts)+i)
		if slices.Contains(mine, a) || ending == nil && len(mine) == 0 && !wasHeld {
			continue
		}
		return &LostError{Lock: a.lock, UUID: a.draft.UUID, Certain: true, Ending: ending, At: j.c.wall()}
	}
	return nil
}

// withdraw gives back those of the locks that are held, when others are not any more.
func (j *joint) withdraw(ctx context.Context, mine []*acquisition) {
	for _, a := range mine {
		if _, err := j.c.send(ctx, locktxn.Withdraw(j.c.layout, a.lock, a.draft.UUID)); err != nil {
			j.c.cancelLater(a.lock, a.draft.UUID)
		}
	}
}

// hold makes the handles. at tells token and, where it was read, the record of each.
func (j *joint) hold(at func(part int) (int64, metadata.Document)) (locks []*Lock, err error) {
	for i, a := range j.parts {
		token, now := at(i)
		until := a.draft.AutoUnlockAt
		if !now.AutoUnlockAt.IsZero() {
			until = now.AutoUnlockAt
		}
		l, failed := a.hold(j.bids[i], token, until)
		if failed != nil {
			err = failed
			continue
		}
		locks = append(locks, l)
	}
	if err != nil {
		return nil, errors.Join(err, unlockAll(locks))
	}
	return locks, nil
}

// refusal tells why the locks were not taken, by what the transaction read.
func (j *joint) refusal(ctx context.Context, r answer) error {
	var held *HeldError
	for i, a := range j.parts {
		if a.now = j.c.record(a.lock, r, i); a.now.Token != 0 && held == nil {
			held = a.heldError()
		}
	}
	if failed := j.c.failed(j.parts[0].lock, r, len(j.parts), j.only); failed != nil {
		if held != nil {
			failed.Holder = &held.Holder
		}
		return failed
	}
	if held != nil {
		return held
	}
	return j.queued(ctx)
}

// queued finds out why locks that nobody holds were refused: others queue for them, or the ends of queues were left
// behind when the last one in them died. Otherwise what stood in the way is gone by now.
func (j *joint) queued(ctx context.Context) error {
	r, err := j.c.send(ctx, locktxn.Queues(j.c.layout, j.sent()))
	if err != nil {
		return err
	}
	for i, a := range j.parts {
		if n := len(r.keys(2 * i).Kvs); n > 0 && !a.set.barge {
			held := a.heldError()
			held.Position = n + 1
			return held
		}
		j.tails[i] = 0
		if tail := r.keys(2*i + 1).Kvs; len(tail) > 0 {
			j.tails[i] = tail[0].ModRevision
		}
	}
	return errStale
}
