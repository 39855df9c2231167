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

// waiterRecheck is how often a waiter asks again although its watch says nothing: a safety net, not the way it learns
// that the lock is free.
const waiterRecheck = 10 * time.Second

// Lock takes the lock, waiting in the queue as long as others hold it or came before, until ctx ends: then the error is
// a [*HeldError] where the holder is known. Without a deadline it waits for ever, through outages of etcd too.
//
// Whatever is wrong with the name or the options is an error before etcd is asked.
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
	defer func(began time.Time) { a.waited(began, l, err) }(time.Now())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.asking(ctx)
	done, ok := c.beginWait()
	if !ok {
		return nil, a.explain(ErrClosed)
	}
	defer done()
	defer context.AfterFunc(c.waits, func() { cancel(ErrClosed) })()
	if a.set.barge {
		return a.barge(ctx, b)
	}
	return a.queue(ctx, b)
}

// TryLock takes the lock if it is free and nobody queues for it, else the error is a [*HeldError]. It never waits for a
// holder, and for etcd no longer than the client's request timeout.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, b, err := c.newAcquisition(name, opts)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if l, err := a.again(ctx); l != nil || err != nil {
		return l, err
	}
	defer func(began time.Time) { a.waited(began, l, err) }(time.Now())
	if a.set.conditional() {
		return a.tryOn(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	l, err = a.try(ctx, b)
	return l, a.explain(err)
}

// acquisition is one wish for one lock. Its uuid becomes that of the hold, and changes when an outcome stayed unknown
// or a place in the queue was lost.
type acquisition struct {
	c     *Client
	lock  string
	set   settings
	draft metadata.Draft // but for the times
	at    place          // of the call
	outer *Lock          // the innermost hold under which it is made

	// What etcd said last, and whether an earlier sending may still be committed although there was an answer since.
	seen  int64 // revision
	now   metadata.Document
	doubt bool

	line line
	told Waiting // by OnWait

	record  string  // what it writes: the record of the lock, or of a share of it
	holders holders // of a lock that several can hold, as last seen
}

// newAcquisition checks all that can be checked without etcd and makes the first bid.
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
	a := &acquisition{c: c, lock: name, record: name, set: set, draft: metadata.Draft{
		UUID: uuid.NewString(), Owner: set.owner, Hostname: c.opts.Hostname, PID: c.pid, Purpose: set.purpose,
		Client: c.about, Attributes: set.attributes, Backtrace: c.traces.take(set.backtraceDepth),
	}}
	a.at = placeOf(a.draft.Backtrace)
	b, err := a.bid()
	return a, b, err
}

// bid is what is sent to etcd to get the lock. Its deadlines count from before the first sending; a repetition has the
// same bytes.
type bid struct {
	start time.Time // for the local deadline, on the monotonic clock
	wall  time.Time // for the record

	fields []metadata.Field
}

func (a *acquisition) bid() (bid, error) {
	b := bid{start: time.Now(), wall: a.c.wall()}
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

// try asks for the lock, beginning with bid b, until the answer is definite: a hold, a [*HeldError], a refusal, or the
// end of ctx.
func (a *acquisition) try(ctx context.Context, b bid) (*Lock, error) {
	if a.set.kind.shared() {
		return a.tryShare(ctx, b)
	}
	for n := 0; ; n++ {
		l, _, err := a.ask(ctx, b, locktxn.Acquire(a.c.layout, a.lock, a.draft.UUID, b.fields, a.set.barge))
		if l == nil && err == nil {
			if a.doubt {
				a.abandon()
			}
			if a.now.Token != 0 {
				return nil, a.heldError()
			}
			l, err = a.tryPast(ctx)
		}
		if err != errStale {
			return l, err
		}
		pause(ctx, delay(n))
		if b, err = a.bid(); err != nil {
			return nil, err
		}
	}
}

// tryPast takes a lock that nobody holds and that was refused: others queue for it, or the end of their queue was left
// behind when the last one of them died.
func (a *acquisition) tryPast(ctx context.Context) (*Lock, error) {
	r, err := a.c.send(ctx, locktxn.Queue(a.c.layout, a.lock))
	if err != nil {
		return nil, err
	}
	tail := r.keys(1).Kvs
	if n := len(r.keys(0).Kvs); n > 0 {
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
	l, _, err := a.ask(ctx, b, locktxn.AcquirePast(a.c.layout, a.lock, a.draft.UUID, b.fields, tail[0].ModRevision))
	if l == nil && err == nil {
		if a.doubt {
			a.abandon()
		}
		err = a.heldError()
	}
	return l, err
}

// errStale asks for another bid: this one got too old while etcd did not answer, or its uuid was cancelled.
var errStale = errors.New("the bid is stale")

// ask sends a transaction that takes the lock or reads the record, and what else it likes, until there is an answer: a
// hold, or what it read. Where the outcome stays unknown the attempt is over and the acquisition begins another.
func (a *acquisition) ask(ctx context.Context, b bid, txn locktxn.Txn) (*Lock, answer, error) {
	r, err := a.propose(ctx, txn)
	if err != nil {
		return nil, r, err
	}
	a.seen = r.Header.Revision
	if r.Succeeded {
		l, err := a.hold(b, r.Header.Revision, a.draft.AutoUnlockAt)
		return l, r, err
	}
	a.now = a.c.record(a.lock, r, 0)
	if a.now.Token != 0 && a.now.UUID == a.draft.UUID {
		l, err := a.hold(b, a.now.Token, a.now.AutoUnlockAt) // an earlier sending was committed, its answer was lost
		return l, r, err
	}
	return nil, r, nil
}

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
	if a.line.lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
	}
	if a.set.kind.shared() {
		a.c.cancelShareLater(a.lock, a.draft.UUID)
	} else {
		a.c.cancelLater(a.lock, a.draft.UUID)
	}
	if a.line.lease != nil {
		a.c.drop(a.line.lease)
	}
	a.line, a.doubt = line{}, false
	a.draft.UUID = uuid.NewString()
}

// heldError tells who holds the lock, by the last answer.
func (a *acquisition) heldError() *HeldError {
	held := &HeldError{Lock: a.lock, Holder: a.now, At: a.c.wall(), Where: a.c.holds.where(a.now.UUID)}
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
	}, a.ends()...)
	switch {
	case l != nil:
		return l, nil
	case ctx.Err() != nil:
		held.Err = ended(ctx)
		return nil, held
	}
	return nil, a.explain(err)
}

// old tells that all of the events are older than what was read last, so that there is nothing new in them.
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
