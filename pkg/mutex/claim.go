package mutex

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
)

// claimer takes one kind of lock for an acquisition: [plainClaim] or [shareClaim]. It is chosen once. What does not
// depend on the kind (bids, doubt, the place in the queue, giving up) is the acquisition's.
type claimer interface {
	// try sends the bid once, without queueing, after so many refusals. errStale asks for another bid after a pause,
	// errRivals for another one at once.
	try(ctx context.Context, b bid, refusals int) (*Lock, error)

	// tryPast takes a lock that nobody holds past a tail behind which nobody queues, seen at this mod revision.
	tryPast(ctx context.Context, b bid, tail int64) (*Lock, error)

	// join takes the lock or joins its queue. Without a hold and an error the acquisition has its place.
	join(ctx context.Context, b bid) (*Lock, error)

	// advance acts on what happened to the keys that a waiter follows, or, without events, on anything that may have
	// happened. Without a hold and an error the wait goes on.
	advance(ctx context.Context, events []*clientv3.Event) (*Lock, error)

	// ends are the keys whose deletion tells the first in the queue that a hold has ended.
	ends() []etcdretry.Watched

	// standing reads the holders, then the keys of the tickets before a place. It needs the name of the lock only.
	standing(locktxn.Position) locktxn.Txn

	// standingOf are the holders that an answer has first, and the number of operations that read them.
	standingOf(etcdretry.Answer) (holders, int)
}

// newClaimer chooses the claimer of an acquisition.
func newClaimer(a *acquisition) claimer {
	if a.set.kind.shared() {
		return shareClaim{a}
	}
	return plainClaim{a}
}

// maxRivals is how often a share is claimed at once past others who claim one at the same time. After that, pauses or
// the queue bring order into it.
const maxRivals = 3

var (
	// errStale asks for another bid: this one got too old while etcd did not answer, or its uuid was cancelled.
	errStale = errors.New("the bid is stale")

	// errRivals asks for another bid, because others claimed the same share.
	errRivals = errors.New("others claimed the same share")
)

// try asks for the lock, beginning with bid b, until the answer is definite: a hold, a [*HeldError], a refusal, or the
// end of ctx.
func (a *acquisition) try(ctx context.Context, b bid) (*Lock, error) {
	for n := 0; ; n++ {
		l, err := a.claimer.try(ctx, b, n)
		switch {
		case l != nil || err != errStale && err != errRivals:
			return l, err
		case err == errStale || n >= maxRivals:
			etcdretry.Pause(ctx, etcdretry.Delay(n))
		}
		if b, err = a.bid(); err != nil {
			return nil, err
		}
	}
}

// tryPast takes a lock that has room and was refused: others queue for it, or the last of them died and left the tail
// of the queue behind.
func (a *acquisition) tryPast(ctx context.Context) (*Lock, error) {
	r, err := a.c.retry.Send(ctx, locktxn.Queue(a.c.layout, a.lock))
	if err != nil {
		return nil, err
	}
	tail := r.Keys(1).Kvs
	if n := len(r.Keys(0).Kvs); n > 0 {
		held := a.heldError()
		held.Position = n + 1
		return nil, held
	}
	if len(tail) == 0 || a.set.barge {
		a.abandon() // the queue is gone; if there was none, this attempt was cancelled by somebody
		return nil, errStale
	}
	b, err := a.bid()
	if err != nil {
		return nil, err
	}
	return a.claimer.tryPast(ctx, b, tail[0].ModRevision)
}

// commit sends a transaction that takes the lock by this record or reads the holders, until there is an answer: a hold,
// or what it read. Where the outcome stays unknown the attempt is over and the acquisition begins another.
func (a *acquisition) commit(ctx context.Context, b bid, record string,
	txn locktxn.Txn) (*Lock, etcdretry.Answer, error) {
	r, err := a.propose(ctx, txn)
	if err != nil {
		return nil, r, err
	}
	if r.Succeeded {
		l, err := a.hold(b, record, r.Header.Revision, a.draft.AutoUnlockAt)
		return l, r, err
	}
	a.meet(r)
	l, err := a.found(b)
	return l, r, err
}

// meet keeps the holders, which an answer has first.
func (a *acquisition) meet(r etcdretry.Answer) {
	a.seen = r.Header.Revision
	a.holders, _ = a.claimer.standingOf(r)
	a.holder = a.holders.oldest()
}

// found is the hold of an earlier sending whose answer was lost; nil when there is none.
func (a *acquisition) found(b bid) (*Lock, error) {
	mine, ok := a.holders.mine(a.draft.UUID)
	if !ok {
		return nil, nil
	}
	return a.hold(b, mine.Name, mine.Token, mine.AutoUnlockAt)
}
