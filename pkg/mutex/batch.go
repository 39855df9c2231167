package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// batch takes one lock or several in one transaction, all or none, together with the caller's own conditions and
// writes. It never waits.
//
// The outcome of a single acquisition may stay indeterminate, that of a batch must not: a late commit would do the
// caller's writes again, or take some locks after others were released. So an unanswered request is settled before its
// outcome is reported.
type batch struct {
	c          *Client
	wanted     []*acquisition // by name
	proposals  []proposal
	fresh      time.Duration // how long they are sent
	locks      []locktxn.BatchLock
	conditions []clientv3.Cmp
	writes     []clientv3.Op
}

// readsPerLock is how many operations read one lock: its holders and the tail of its queue.
const readsPerLock = locktxn.HolderReads + 1

// maxOpsPerLock is the most operations that one lock takes: the keys of its record and the tail of its queue. Each
// condition needs one more for its report: etcd counts nested operations, too.
const maxOpsPerLock = 5

func (a *acquisition) tryConditional(ctx context.Context) (*Lock, error) {
	if a.set.kind.shared() {
		return nil, withNames(errors.New("If and Then work with plain locks only, not with those several can hold"),
			a.lock)
	}
	j := &batch{c: a.c, wanted: []*acquisition{a}, conditions: a.set.conditions, writes: a.set.writes}
	locks, err := j.try(ctx)
	if err != nil {
		return nil, withNames(err, a.lock)
	}
	return locks[0], nil
}

// try takes the locks, repeating the request until the outcome is definite.
func (b *batch) try(ctx context.Context) ([]*Lock, error) {
	room := locktxn.MaxOps - 1 - maxOpsPerLock*len(b.wanted)
	if err := b.c.checkWrites(b.conditions, b.writes, b.wanted[0].set.documents, room); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.c.opts.RequestTimeout)
	defer cancel()
	b.fresh = maxDuration
	b.proposals = make([]proposal, len(b.wanted))
	b.locks = make([]locktxn.BatchLock, len(b.wanted))
	for n := 0; ; n++ {
		locks, err := b.attempt(ctx)
		if err != errStale {
			return locks, err
		}
		if !etcdretry.Sleep(ctx, etcdretry.Backoff(n)) {
			return nil, contextError(ctx)
		}
		for _, a := range b.wanted {
			a.draft.UUID = uuid.NewString()
		}
	}
}

// attempt makes one proposal. The error [errStale] asks for another.
func (b *batch) attempt(ctx context.Context) ([]*Lock, error) {
	if err := b.propose(); err != nil {
		return nil, err
	}
	txn := locktxn.AcquireBatch(b.c.layout, b.locks, b.conditions, b.writes)
	if err := checkSize(txn); err != nil {
		return nil, err
	}
	fresh, cancel := context.WithTimeout(ctx, b.fresh)
	defer cancel()
	r, err := b.c.retry.Send(fresh, txn)
	switch {
	case r.Indeterminate:
		return b.settle(ctx, r, err)
	case err != nil && fresh.Err() != nil && ctx.Err() == nil:
		return nil, errStale
	case err != nil:
		return nil, err
	case r.Succeeded:
		return b.newHandles(func(int) (int64, metadata.FullRecord) { return r.Header.Revision, metadata.FullRecord{} })
	}
	if len(b.heldByAttempt(r)) > 0 { // etcd's client sent it twice by itself
		return b.settle(ctx, r, nil)
	}
	return nil, b.refusal(ctx, r)
}

func (b *batch) propose() error {
	for i, a := range b.wanted {
		p := a.newProposal()
		if p.err != nil {
			return p.err
		}
		b.proposals[i] = p
		b.fresh = min(b.fresh, a.set.autoUnlockAfter/3)
		b.locks[i] = locktxn.BatchLock{Lock: a.lock, UUID: a.draft.UUID, Fields: p.fields,
			CountedAt: a.holders.revision, SkipQueue: a.set.withoutQueue, Tail: b.locks[i].Tail}
	}
	return nil
}

// settle makes the outcome of unanswered requests definite: none of them can be committed later, and the locks are held
// or not. r and err are the result of the requests.
func (b *batch) settle(ctx context.Context, r etcdretry.Response, err error) ([]*Lock, error) {
	s, unsettled := b.c.tombstones.send(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.SettleBatch(b.c.layout, b.locks, lease)
	})
	if unsettled != nil {
		for _, a := range b.wanted {
			a.cancelLater()
		}
		if err == nil {
			err = unsettled
		}
		return nil, fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, err)
	}
	if mine := b.heldByAttempt(s); len(mine) == len(b.wanted) {
		return b.newHandles(func(i int) (int64, metadata.FullRecord) {
			now := readRecord(b.c.layout, b.wanted[i].lock, s, readsPerLock*i)
			return now.Token, now
		})
	} else if lost := b.lostBefore(s, mine, r.TxnResponse != nil && r.Succeeded); lost != nil {
		b.withdraw(ctx, mine)
		return nil, lost
	}
	switch {
	case err == nil:
		return nil, b.refusal(ctx, r)
	case ctx.Err() == nil && !locktxn.IsRefused(err) && !locktxn.IsNoSpace(err):
		return nil, errStale
	}
	return nil, err
}

// heldByAttempt returns the locks that this attempt holds, as the first operations read them.
func (b *batch) heldByAttempt(r etcdretry.Response) (mine []*acquisition) {
	for i, a := range b.wanted {
		if now := readRecord(b.c.layout, a.lock, r, readsPerLock*i); now.Token != 0 && now.UUID == a.draft.UUID {
			mine = append(mine, a)
		}
	}
	return mine
}

// lostBefore returns an error if the locks were taken and one of them was removed again before this process learned of
// it; mine are still held.
func (b *batch) lostBefore(s etcdretry.Response, mine []*acquisition, wasHeld bool) error {
	for i, a := range b.wanted {
		ending := b.c.readEnding(s, readsPerLock*len(b.wanted)+i)
		if slices.Contains(mine, a) || ending == nil && len(mine) == 0 && !wasHeld {
			continue
		}
		return &LostError{Name: a.lock, UUID: a.draft.UUID, Certain: true, Ending: ending, At: b.c.wall()}
	}
	return nil
}

func (b *batch) withdraw(ctx context.Context, mine []*acquisition) {
	for _, a := range mine {
		if _, err := b.c.retry.Send(ctx,
			locktxn.Withdraw(b.c.layout, locktxn.PlainClaim(a.lock), a.draft.UUID)); err != nil {
			a.cancelLater()
		}
	}
}

// newHandles makes the handles. at returns the token of each lock and, if it was read, its record.
func (b *batch) newHandles(at func(i int) (int64, metadata.FullRecord)) (locks []*Lock, err error) {
	for i, a := range b.wanted {
		token, now := at(i)
		until := a.draft.AutoUnlockAt
		if !now.AutoUnlockAt.IsZero() {
			until = now.AutoUnlockAt
		}
		l, failed := a.newHandle(b.proposals[i], a.lock, token, until)
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

// refusal returns why the locks were not taken, from what the transaction read.
func (b *batch) refusal(ctx context.Context, r etcdretry.Response) error {
	var held *HeldError
	for i, a := range b.wanted {
		a.holders = readHolders(b.c.layout, a.lock, kind{}, r, readsPerLock*i, locktxn.HolderReads)
		a.holder = a.holders.oldest()
		if held == nil && !a.holders.hasRoom(kind{}) {
			held = a.heldError(ctx)
		}
	}
	if failed := b.c.conditionError(b.wanted[0].lock, r, readsPerLock*len(b.wanted), b.conditions); failed != nil {
		if held != nil {
			failed.Holder = &held.Holder
		}
		return failed
	}
	if held != nil {
		return held
	}
	return b.checkQueues(ctx)
}

// checkQueues finds out why locks that nobody holds were refused: others queue for them, or the tails of queues were
// left behind when their last waiters died. Otherwise the obstacle is gone by now.
func (b *batch) checkQueues(ctx context.Context) error {
	r, err := b.c.retry.Send(ctx, locktxn.ReadQueueLengths(b.c.layout, b.locks))
	if err != nil {
		return err
	}
	for i, a := range b.wanted {
		if n := r.Keys(2 * i).Count; n > 0 && !a.set.withoutQueue {
			held := a.heldError(ctx)
			held.Position = int(n) + 1
			return held
		}
		b.locks[i].Tail = 0
		if tail := r.Keys(2*i + 1).Kvs; len(tail) > 0 {
			b.locks[i].Tail = tail[0].ModRevision
		}
	}
	return errStale
}
