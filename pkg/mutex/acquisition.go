package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// acquisition is one call that wants one lock. Its uuid becomes that of the hold. It gets a new one, for another
// attempt, when an outcome stayed unknown or its position in the queue was lost.
type acquisition struct {
	c       *Client
	caller  context.Context // for hooks
	claimer claimer
	lock    string
	set     settings
	draft   metadata.Draft // but for the times
	site    callSite       // of the call
	outer   *Lock          // the innermost hold under which it is made

	// What etcd answered last.
	seen    int64 // revision
	holders holders
	holder  metadata.Document // the oldest of them
	doubt   bool              // an earlier sending may still be committed, although there was an answer since

	queue    queueEntry
	reported Waiting // to OnWait
}

// queueEntry is what an acquisition has in the queue of its lock. The zero queueEntry is nothing.
type queueEntry struct {
	lease    *lease // serves this attempt only; may be there before the position
	position locktxn.Position
	ticket   metadata.Ticket

	before string // uuid of the ticket before it; empty when there is none or it is not known
	first  bool   // for certain; no ticket ever gets in before it

	refusedAfter string // uuid of the hold whose release the turn overtook
}

// claimer takes one kind of lock for an acquisition: [plainClaim] or [shareClaim]. It is chosen once. What does not
// depend on the kind (bids, doubt, the position in the queue, giving up) is the acquisition's.
type claimer interface {
	// try sends the bid once, without queueing, after so many refusals. errStale asks for another bid after a pause,
	// errRivals for another one at once.
	try(ctx context.Context, b bid, refusals int) (*Lock, error)

	// tryPast takes a lock that nobody holds past a tail behind which nobody queues, seen at this mod revision.
	tryPast(ctx context.Context, b bid, tail int64) (*Lock, error)

	// join takes the lock or joins its queue. If both results are nil, the acquisition is in the queue.
	join(ctx context.Context, b bid) (*Lock, error)

	// advance acts on events of the keys that a waiter follows, or, without events, on whatever may have happened. If
	// both results are nil, the wait goes on.
	advance(ctx context.Context, events []*clientv3.Event) (*Lock, error)

	// inherit takes the lock that the ticket ahead handed over or, early, is about to hand over. If both results are
	// nil, the wait goes on.
	inherit(ctx context.Context, early bool) (*Lock, error)

	// ends are the keys whose deletion tells the first in the queue that a hold has ended.
	ends() []etcdretry.Watched

	// keepsTicket reports whether the ticket stays while the lock is held: then its end hands the lock over.
	keepsTicket() bool

	// cancel ends the attempt with this uuid, whose outcome is unknown: afterwards nothing is held by it and nothing
	// will be, and it stands in no queue. It needs the name of the lock only.
	cancel(ctx context.Context, uuid string) error

	// explain adds to an error what is known of the holders.
	explain(held *HeldError)

	// inTheWay returns which of the holders would have to finish for this acquisition to get the lock.
	inTheWay(of []metadata.Document) []metadata.Document

	// known is what a waiter keeps of the holders, to ask whether they are still the same.
	known(holders) locktxn.Known

	// inBatch reports whether the lock can be taken in one transaction with others, and with the caller's own writes.
	inBatch() bool

	// standing reads the holders, then the keys of tickets, see [locktxn.ReadStanding]. It needs the name of the lock
	// only.
	standing() locktxn.Txn

	// standingOf are the holders that an answer has first, and the number of operations that read them.
	standingOf(etcdretry.Answer) (holders, int)
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

// bid is what is sent to etcd to get the lock. Its deadlines count from before the first sending; a repetition has the
// same bytes.
type bid struct {
	moment // monotonic for the local deadline, wall for the record

	fields []metadata.Field
}

func (a *acquisition) bid() (bid, error) {
	b := bid{moment: a.c.moment()}
	a.set.stamp(&a.draft, b.wall)
	fields, err := a.draft.Fields()
	if err != nil {
		return b, err
	}
	b.fields = fields
	return b, nil
}

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
	r, err := a.c.retry.Send(ctx, locktxn.QueueLength(a.c.layout, a.lock))
	if err != nil {
		return nil, err
	}
	tail := r.Keys(1).Kvs
	if n := r.Keys(0).Count; n > 0 {
		held := a.heldError()
		held.Position = int(n) + 1
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

// propose sends a transaction with a bid for as long as the bid is fresh.
func (a *acquisition) propose(ctx context.Context, txn locktxn.Txn) (etcdretry.Answer, error) {
	began := time.Now()
	fresh := a.set.autoUnlockAfter / 3
	r, err := a.c.retry.SendFor(ctx, fresh, txn)
	a.doubt = a.doubt || r.Doubt
	if err != nil {
		if r.Doubt {
			a.abandon()
		}
		if time.Since(began) >= fresh && ctx.Err() == nil {
			err = errStale
		}
	}
	return r, err
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

// hold is the handle of a lock that etcd says is ours, by this record.
func (a *acquisition) hold(b bid, record string, token int64, autoUnlockAt time.Time) (*Lock, error) {
	c := a.c
	l := &Lock{
		c: c, set: a.set, wanted: a.lock, held: locktxn.Hold{Lock: record, UUID: a.draft.UUID, Token: token},
		began: b.moment, site: a.site, outer: a.outer,
		extension: extension{alertTarget: b.wall.Add(a.set.alertAfter)},
		deadline: deadline{
			until:   b.monotonic.Add(autoUnlockAt.Sub(b.wall) - a.set.safetyMargin),
			counted: b.moment, recorded: autoUnlockAt,
		},
	}
	l.origin.detached = a.draft.Process.Detached
	if a.doubt {
		l.origin.cancel = a.canceller()
		a.doubt = false
	}
	switch lease := a.queue.lease; {
	case a.queue.position.Revision != 0 && a.claimer.keepsTicket():
		l.origin.lease = lease
	case lease != nil && l.origin.cancel != nil:
		c.leases.drop(lease)
	case lease != nil:
		c.leases.giveBack(lease)
	}
	a.queue = queueEntry{}
	l.prepare()
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

// abandon leaves a uuid whose sendings may still be committed to the background and goes on with a new one.
func (a *acquisition) abandon() {
	lease := a.queue.lease
	if lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
	}
	a.cancelLater()
	if lease != nil {
		a.c.leases.drop(lease)
	}
	a.queue = queueEntry{}
	a.doubt = false
	a.draft.UUID = uuid.NewString()
}

// canceller cancels this attempt, whatever the acquisition goes on with.
func (a *acquisition) canceller() func(context.Context) error {
	uuid := a.draft.UUID
	return func(ctx context.Context) error { return a.claimer.cancel(ctx, uuid) }
}

// cancelLater cancels this attempt in the background.
func (a *acquisition) cancelLater() { a.c.cancelLater(a.lock, a.draft.UUID, a.canceller()) }

// abandonInDoubt abandons a uuid of which a sending was not answered.
func (a *acquisition) abandonInDoubt() {
	if a.doubt {
		a.abandon()
	}
}

// leaveLater gives up whatever this attempt has in the queue, in the background, and goes on with a new uuid.
func (a *acquisition) leaveLater() {
	if a.doubt {
		a.abandon()
		return
	}
	if a.queue.lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
		a.c.leases.drop(a.queue.lease) // and with it what is still under way
	}
	a.queue = queueEntry{}
	a.draft.UUID = uuid.NewString()
}

// heldError names the holder by the last answer.
func (a *acquisition) heldError() *HeldError {
	held := &HeldError{Lock: a.lock, Holder: a.holder, At: a.c.wall(), Where: a.c.holds.where(a.holder.UUID)}
	a.claimer.explain(held)
	return held
}

// explain says what was tried, where the error does not say it itself.
func (a *acquisition) explain(err error) error {
	if _, isHeld := errors.AsType[*HeldError](err); err == nil || isHeld || errors.Is(err, ErrCondition) ||
		errors.Is(err, ErrNotHeld) {
		return err
	}
	return fmt.Errorf("lock %q: %w", a.lock, err)
}
