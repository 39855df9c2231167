package mutex

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// acquisition is one call that wants one lock. Its uuid becomes that of the hold. It gets a new uuid, for another
// attempt, when an outcome stays unknown or its position in the queue is lost.
type acquisition struct {
	c        *Client
	caller   context.Context // for hooks
	lock     string
	set      settings
	draft    lockrecord.Draft // without the times
	callSite string           // of the call
	outer    *Lock            // the innermost hold under which it is made
	began    time.Time        // wall clock

	// What etcd answered last.
	seen    int64 // revision
	holders holders
	overdue overdueCheck
	holder  metadata.FullRecord // the oldest of them

	// indeterminate means that an earlier request may still be committed, although etcd has answered since.
	indeterminate bool

	queue    queueEntry
	reported HeldError // to OnWait
	asked    []string  // to finish: uuids of present holders that are not asked again
}

// queueEntry is what an acquisition has in the queue of its lock: zero if it has not joined.
type queueEntry struct {
	lease    *lease // serves this attempt only; may exist before the position
	position locktxn.Position
	ticket   metadata.Ticket

	before string // uuid of the ticket before it; empty if there is none or it is unknown
	first  bool   // for certain: no ticket can get in before it any more
}

// proposal is what is sent to etcd to get the lock. Its deadlines count from before the first request; a repetition has
// the same bytes.
type proposal struct {
	moment // monotonic for the local deadline, wall for the record

	fields []metadata.Field
	err    error // that there are no fields, instead of an answer
}

func (a *acquisition) newProposal() proposal {
	p := proposal{moment: a.c.moment()}
	a.set.stamp(&a.draft, p.wall)
	p.fields, p.err = a.draft.Fields()
	return p
}

// maxQuickRetries is how often a share is claimed again without a pause when others claim one at the same time. After
// that, pauses or the queue separate the rivals.
const maxQuickRetries = 3

var (
	// errStale asks for another proposal: this one got too old while etcd did not answer, or its uuid was cancelled.
	errStale = errors.New("the proposal is stale")

	// errRivals asks for another proposal, because others claimed the same share.
	errRivals = errors.New("others claimed the same share")
)

var errPositionLost = errors.New("the position in the queue was lost")

// try requests the lock, beginning with proposal p, until the outcome is definite: a hold, a [*HeldError], a refusal,
// or the end of ctx.
func (a *acquisition) try(ctx context.Context, p proposal) (*Lock, error) {
	for n := 0; ; n++ {
		l, err := a.tryOnce(ctx, p, n)
		switch {
		case l != nil || err != errStale && err != errRivals:
			return l, err
		case err == errStale || n >= maxQuickRetries:
			etcdretry.Sleep(ctx, etcdretry.Backoff(n))
		}
		p = a.newProposal()
	}
}

// tryOnce sends the proposal without queueing. refusals counts the earlier refusals.
func (a *acquisition) tryOnce(ctx context.Context, p proposal, refusals int) (*Lock, error) {
	claim := a.nextClaim(refusals)
	l, r, err := a.commit(ctx, p, claim, locktxn.Acquire(a.c.layout, claim, a.draft.UUID, p.fields, a.set.withoutQueue))
	if l != nil || err != nil {
		return l, err
	}
	indeterminate := a.indeterminate
	a.cancelIfIndeterminate()
	switch {
	case !a.holders.hasRoom(a.set.kind):
		return nil, a.heldError(ctx)
	case !indeterminate && !a.set.withoutQueue && len(r.Keys(locktxn.HolderReads).Kvs) > 0:
		return a.tryPastDeadTail(ctx)
	}
	return nil, errRivals
}

// tryPastDeadTail takes a lock that has room but was refused: others queue for it, or the last of them died and left
// the tail of the queue behind.
func (a *acquisition) tryPastDeadTail(ctx context.Context) (*Lock, error) {
	r, err := a.c.retry.Send(ctx, locktxn.ReadQueueLength(a.c.layout, a.lock))
	if err != nil {
		return nil, err
	}
	tail := r.Keys(1).Kvs
	if n := r.Keys(0).Count; n > 0 {
		held := a.heldError(ctx)
		held.Position = int(n) + 1
		return nil, held
	}
	if len(tail) == 0 {
		a.cancelAttempt() // the queue is gone; if there was none, this attempt was cancelled
		return nil, errStale
	}
	p := a.newProposal()
	claim := a.nextClaim(0)
	l, _, err := a.commit(ctx, p, claim, locktxn.AcquirePastTail(a.c.layout, claim, a.draft.UUID, p.fields,
		tail[0].ModRevision))
	if l != nil || err != nil {
		return l, err
	}
	a.cancelIfIndeterminate()
	if !a.holders.hasRoom(a.set.kind) {
		return nil, a.heldError(ctx)
	}
	return nil, errStale // another client came between
}

// nextClaim returns what to claim, given the known holders. If they left no room when last read, it assumes that the
// lock has become free.
//
// Readers that were refused more than once spread over the vacant shares, because others claim one at the same time.
func (a *acquisition) nextClaim(refusals int) locktxn.Claim {
	k := a.set.kind
	known := a.holders // which an error names if etcd does not answer any more
	if !known.hasRoom(k) {
		known = holders{}
	}
	skip := 0
	if refusals > 1 && k.name == metadata.KindShared {
		skip = rand.N(1 << min(refusals, 6))
	}
	return known.claim(a.lock, k, skip)
}

func (a *acquisition) sendProposal(ctx context.Context, txn locktxn.Txn) (etcdretry.Response, error) {
	began := time.Now()
	fresh := a.set.autoUnlockAfter / 3
	r, err := a.c.retry.SendFor(ctx, fresh, txn)
	a.indeterminate = a.indeterminate || r.Indeterminate
	if err != nil {
		if r.Indeterminate {
			a.cancelAttempt()
		}
		if time.Since(began) >= fresh && ctx.Err() == nil {
			err = errStale
		}
	}
	return r, err
}

// commit sends a transaction that takes the claim or reads the holders, until there is an answer: a hold, or what it
// read. If the outcome stays unknown, the attempt is over and the acquisition begins another.
func (a *acquisition) commit(ctx context.Context, p proposal, claim locktxn.Claim,
	txn locktxn.Txn) (*Lock, etcdretry.Response, error) {
	if p.err != nil {
		return nil, etcdretry.Response{}, p.err
	}
	r, err := a.sendProposal(ctx, txn)
	if err != nil {
		return nil, r, err
	}
	if r.Succeeded {
		l, err := a.newHandle(p, claim.Record, r.Header.Revision, a.draft.AutoUnlockAt)
		return l, r, err
	}
	a.setHolders(r, locktxn.HolderReads)
	l, err := a.committedHold(p)
	return l, r, err
}

// setHolders stores the holders that the first reads operations of an answer read.
func (a *acquisition) setHolders(r etcdretry.Response, reads int) {
	a.seen = r.Header.Revision
	a.holders = readHolders(a.c.layout, a.lock, a.set.kind, r, 0, reads)
	if oldest := a.holders.oldest(); oldest.Token != 0 || reads == locktxn.HolderReads {
		a.holder = oldest // a read without shares does not forget one of them
	}
}

// committedHold returns the hold of an earlier request whose answer was lost; nil if there is none.
func (a *acquisition) committedHold(p proposal) (*Lock, error) {
	mine, ok := a.holders.byUUID(a.draft.UUID)
	if !ok {
		return nil, nil
	}
	return a.newHandle(p, mine.Name, mine.Token, mine.AutoUnlockAt)
}

// newHandle makes the handle of a lock that was taken with this record.
func (a *acquisition) newHandle(p proposal, record string, token int64, autoUnlockAt time.Time) (*Lock, error) {
	c := a.c
	l := &Lock{
		c: c, set: a.set, wanted: a.lock, held: locktxn.Hold{Lock: record, UUID: a.draft.UUID, Token: token},
		began: p.moment, callSite: a.callSite, outer: a.outer,
		extension: extension{alertTarget: p.wall.Add(a.set.alertAfter)},
		deadline: deadline{
			until:   p.monotonic.Add(autoUnlockAt.Sub(p.wall) - a.set.safetyMargin),
			counted: p.moment, recorded: autoUnlockAt,
		},
	}
	l.origin.detached = a.draft.Process.Detached
	if a.indeterminate {
		l.origin.cancel = a.canceller()
		a.indeterminate = false
	}
	switch lease := a.queue.lease; {
	case a.queue.position.Revision != 0 && !a.set.kind.shared(): // the ticket stays, marked as holding
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

// endKeys are keys whose deletion tells the first in the queue that a hold or a lock delay is over.
type endKeys struct{ shares, delays bool }

// endKeys returns which keys it has to follow, besides that of the lock.
func (a *acquisition) endKeys() endKeys {
	return endKeys{shares: a.set.kind.shared() || len(a.holders.shares) > 0, delays: a.holders.hasDelays()}
}

func (e endKeys) targets(layout protocol.Layout, lock string) []etcdretry.WatchTarget {
	keys := []etcdretry.WatchTarget{etcdretry.DeletionsOf(layout.Field(lock, lockrecord.FieldUUID))}
	if e.shares {
		keys = append(keys, deletionsIn(layout.Shares(lock)))
	}
	if e.delays {
		keys = append(keys, deletionsIn(layout.LockAndShareDelays(lock)))
	}
	return keys
}

func deletionsIn(from, end string) etcdretry.WatchTarget {
	return etcdretry.WatchTarget{Key: from,
		Options: []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithFilterPut()}}
}

// cancelAttempt begins another attempt and cancels this one, whose requests may still be committed.
func (a *acquisition) cancelAttempt() { a.nextAttempt(true) }

// nextAttempt begins another attempt with a new uuid. In the background it gives up what this one has in the queue and,
// if it is to be cancelled, what its requests may still commit.
func (a *acquisition) nextAttempt(cancel bool) {
	if a.queue.lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID, a.queue.lease)
	}
	if cancel {
		a.cancelLater()
	}
	a.queue = queueEntry{}
	a.indeterminate = false
	a.draft.UUID = uuid.NewString()
}

// canceller returns a function that cancels this attempt, even after the acquisition has begun another.
func (a *acquisition) canceller() func(context.Context) error {
	uuid := a.draft.UUID
	return func(ctx context.Context) error { return a.c.cancelClaim(ctx, a.lock, a.set.kind, uuid) }
}

func (a *acquisition) cancelLater() {
	a.c.cleanups.later(a.lock, a.draft.UUID, protocol.CancelledTTL, a.canceller())
}

func (a *acquisition) cancelIfIndeterminate() {
	if a.indeterminate {
		a.cancelAttempt()
	}
}

// giveUpAttempt begins another attempt and cancels this one if its requests may still be committed.
func (a *acquisition) giveUpAttempt() { a.nextAttempt(a.indeterminate) }

func (a *acquisition) heldError(ctx context.Context) *HeldError {
	held := a.c.heldError(a.lock, a.set.kind, a.holder, &a.holders)
	held.NoUnlocker = a.overdue.nothingRemoves(ctx, a.c, earliestAutoUnlock(a.holders.all()))
	return held
}

// heldError describes the holders of a lock, and the oldest of them, to a caller that wants it as kind k.
func (c *Client) heldError(lock string, k kind, oldest metadata.FullRecord, h *holders) *HeldError {
	held := &HeldError{Name: lock, Holder: oldest, At: c.wall()}
	if own, ok := c.holds.Load(oldest.UUID); ok {
		held.CallSite = own.(*Lock).callSite
	}
	if !h.hasRoom(k) {
		held.Delay = h.lastDelay()
	}
	if k.shared() || len(h.shares) > 0 {
		held.Kind = cmp.Or(k.name, metadata.KindExclusive)
		held.Holders = h.all()
		held.Limit = k.limit
		held.Weight = k.weight
		held.Free = h.free(k.limit)
	}
	return held
}
