package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waiterRecheck is how often a waiter asks again although its watch is silent: a safety net, not the way it learns that
// the lock is free.
const waiterRecheck = 10 * time.Second

// Lock takes the lock. While others hold it or came first, it waits in the queue until ctx ends: then the error is a
// [*HeldError] if the holder is known. Without a deadline it waits for ever, even through outages of etcd.
//
// A bad name or option is an error before etcd is asked.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, b, err := c.newAcquisition(name, opts)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if a.set.conditional() {
		return nil, fmt.Errorf("lock %q: %w", name, errWaits)
	}
	if l, err := a.again(ctx); l != nil || err != nil {
		return l, err
	}
	defer func(began time.Time) { a.notifyAcquired(began, l, err) }(time.Now())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.notifyAsking(ctx)
	done, ok := c.beginWait()
	if !ok {
		return nil, a.explain(ErrClosed)
	}
	defer done()
	defer context.AfterFunc(c.waits, func() { cancel(ErrClosed) })()
	if a.set.barge {
		return a.barge(ctx, b)
	}
	return a.queueUp(ctx, b)
}

// TryLock takes the lock if it is free and nobody queues for it; otherwise the error is a [*HeldError]. It never waits
// for a holder, and for etcd no longer than the client's request timeout.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, b, err := c.newAcquisition(name, opts)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if l, err := a.again(ctx); l != nil || err != nil {
		return l, err
	}
	defer func(began time.Time) { a.notifyAcquired(began, l, err) }(time.Now())
	if a.set.conditional() {
		return a.tryOn(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	l, err = a.try(ctx, b)
	return l, a.explain(err)
}

// acquisition is one call that wants one lock. Its uuid becomes that of the hold, and changes when an outcome stayed
// unknown or a place in the queue was lost.
type acquisition struct {
	c       *Client
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

	queue    queuePlace
	reported Waiting // to OnWait
}

// newAcquisition checks what can be checked without etcd and makes the first bid.
func (c *Client) newAcquisition(name string, opts []Option) (*acquisition, bid, error) {
	if c.isClosed() {
		return nil, bid{}, ErrClosed
	}
	if err := metadata.CheckName(name); err != nil {
		return nil, bid{}, err
	}
	set, err := settle(c.opts.Owner, c.opts.Defaults, opts)
	if err == nil {
		err = set.kind.checkName(name)
	}
	if err != nil {
		return nil, bid{}, err
	}
	a := &acquisition{c: c, lock: name, set: set, draft: metadata.Draft{
		UUID: uuid.NewString(), Owner: set.owner, Hostname: c.opts.Hostname, PID: c.pid, Purpose: set.purpose,
		Client: c.about, Attributes: set.attributes, Backtrace: c.traces.take(set.backtraceDepth),
	}}
	a.claimer = newClaimer(a)
	a.site = callSiteOf(a.draft.Backtrace)
	b, err := a.bid()
	return a, b, err
}

// bid is what is sent to etcd to get the lock. Its deadlines count from before the first sending; a repetition has the
// same bytes.
type bid struct {
	moment // monotonic for the local deadline, wall for the record

	fields []metadata.Field
}

func (a *acquisition) bid() (bid, error) {
	b := bid{moment: a.c.moment()}
	a.draft.LockedAt = b.wall
	a.draft.AutoUnlockAt = b.wall.Add(a.set.autoUnlockAfter)
	a.draft.AlertAt = b.wall.Add(min(a.set.alertAfter, a.set.autoUnlockAfter))
	fields, err := a.draft.Fields()
	if err != nil {
		return b, err
	}
	b.fields = fields
	return b, nil
}

// wall is the time that is written into records.
func (c *Client) wall() time.Time { return c.opts.Now().Truncate(time.Millisecond) }

// propose sends a transaction with a bid for as long as the bid is fresh.
func (a *acquisition) propose(ctx context.Context, txn locktxn.Txn) (answer, error) {
	began := time.Now()
	fresh := a.set.autoUnlockAfter / 3
	r, err := a.c.sendFor(ctx, fresh, txn)
	a.doubt = a.doubt || r.doubt
	if err != nil {
		if r.doubt {
			a.abandon()
		}
		if time.Since(began) >= fresh && ctx.Err() == nil {
			err = errStale
		}
	}
	return r, err
}

// abandon leaves a uuid whose sendings may still be committed to the background and goes on with a new one.
func (a *acquisition) abandon() {
	lease := a.queue.lease
	if lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
	}
	a.c.cancelLater(a.set.kind, a.lock, a.draft.UUID)
	if lease != nil {
		a.c.drop(lease)
	}
	a.queue = queuePlace{}
	a.doubt = false
	a.draft.UUID = uuid.NewString()
}

// abandonInDoubt abandons a uuid of which a sending was not answered.
func (a *acquisition) abandonInDoubt() {
	if a.doubt {
		a.abandon()
	}
}

// heldError names the holder by the last answer.
func (a *acquisition) heldError() *HeldError {
	held := &HeldError{Lock: a.lock, Holder: a.holder, At: a.c.wall(), Where: a.c.holds.where(a.holder.UUID)}
	if a.set.kind.shared() {
		held.Kind = a.set.kind.name
		held.Holders = a.holders.all()
		held.Limit = a.set.kind.limit
		held.Weight = a.set.kind.weight
		held.Free = a.holders.free(held.Limit)
	}
	return held
}

// barge takes the lock as soon as it is free, whoever else waits for it.
func (a *acquisition) barge(ctx context.Context, b bid) (*Lock, error) {
	l, err := a.try(ctx, b)
	held, isHeld := errors.AsType[*HeldError](err)
	if !isHeld {
		return l, a.explain(err)
	}
	defer a.report(ctx)()
	a.c.follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
		if old(events, a.seen) {
			return false
		}
		var b bid
		if b, err = a.bid(); err == nil {
			l, err = a.try(ctx, b)
		}
		newer, isHeld := errors.AsType[*HeldError](err)
		if isHeld {
			held = newer
		}
		return !isHeld
	}, a.claimer.ends()...)
	switch {
	case l != nil:
		return l, nil
	case ctx.Err() != nil:
		held.Err = ended(ctx)
		return nil, held
	}
	return nil, a.explain(err)
}

// old reports whether the last read was newer than all of the events.
func old(events []*clientv3.Event, seen int64) bool {
	return len(events) > 0 && events[len(events)-1].Kv.ModRevision <= seen
}

// explain says what was tried, where the error does not say it itself.
func (a *acquisition) explain(err error) error {
	if _, isHeld := errors.AsType[*HeldError](err); err == nil || isHeld || errors.Is(err, ErrCondition) ||
		errors.Is(err, ErrNotHeld) {
		return err
	}
	return fmt.Errorf("lock %q: %w", a.lock, err)
}
