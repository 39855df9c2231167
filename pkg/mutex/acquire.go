package mutex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lock takes the lock. While others hold it or are ahead in the queue, it waits until ctx ends, even through outages of
// etcd; then the error is a [*HeldError] if the holder is known.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, p, err := c.newAcquisition(ctx, name, opts)
	if err == nil && a.set.conditional() {
		err = errNoConditionsInWait
	}
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if l, err := a.reenter(ctx); l != nil || err != nil {
		return l, err
	}
	defer func(began time.Time) { a.notifyAcquired(began, l, err) }(time.Now())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	notify(c.opts.Hooks.Acquiring, Acquiring{Name: name, Context: ctx})
	done, ok := c.beginWait()
	if !ok {
		return nil, withNames(ErrClosed, a.lock)
	}
	defer done()
	defer context.AfterFunc(c.waitCtx, func() { cancel(ErrClosed) })()
	if a.set.withoutQueue {
		return a.lockWithoutQueue(ctx, p)
	}
	return a.queueUp(ctx, p)
}

// TryLock takes the lock if it is free and no client queues for it; otherwise the error is a [*HeldError]. It never
// waits for a holder, and waits for etcd no longer than [Options].RequestTimeout.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, p, err := c.newAcquisition(ctx, name, opts)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if l, err := a.reenter(ctx); l != nil || err != nil {
		return l, err
	}
	defer func(began time.Time) { a.notifyAcquired(began, l, err) }(time.Now())
	if a.set.conditional() {
		return a.tryConditional(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	l, err = a.try(ctx, p)
	return l, withNames(err, a.lock)
}

// Do takes the lock, waiting for it as [Client.Lock] does, runs fn, and releases the lock when fn returns or panics.
// The context of fn is a [Lock.WorkContext].
//
// The error joins those of fn and of the lock: nil means that fn succeeded and that the lock was held throughout.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) (err error) {
	if fn == nil {
		return fmt.Errorf("lock %q: there is no function to run", name)
	}
	l, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() {
		if lost := l.Unlock(); lost != nil {
			err = errors.Join(err, lost)
		}
	}()

	ctx, done := l.WorkContext(ctx)
	defer done()
	return fn(ctx)
}

// errNoConditionsInWait refuses conditions in a call that may wait: its turn comes by one of several transactions, each
// of which may be repeated.
var errNoConditionsInWait = errors.New("only TryLock and TryLockAll take If and Then: to wait, take the lock and use " +
	"its Guard in a transaction of your own")

// newAcquisition checks the name and options, and makes the first proposal.
func (c *Client) newAcquisition(ctx context.Context, name string, opts []Option) (*acquisition, proposal, error) {
	if of := c.opts.ContextOptions; of != nil {
		opts = slices.Concat(of(ctx), opts)
	}
	set, draft, err := c.draft(name, opts)
	if err != nil {
		return nil, proposal{}, err
	}
	a := &acquisition{c: c, caller: ctx, lock: name, set: set, draft: draft, callSite: callSiteOf(draft.Backtrace)}
	p := a.newProposal()
	a.began = p.wall
	return a, p, p.err
}

// lockWithoutQueue takes the lock as soon as it is free, no matter who waits for it.
func (a *acquisition) lockWithoutQueue(ctx context.Context, p proposal) (*Lock, error) {
	l, err := a.try(ctx, p)
	held, isHeld := errors.AsType[*HeldError](err)
	if !isHeld {
		return l, withNames(err, a.lock)
	}
	defer a.reportWait(ctx)()
	for isHeld && ctx.Err() == nil {
		followed := a.endKeys()
		a.c.retry.Follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
			if n := len(events); n > 0 && events[n-1].Kv.ModRevision <= a.seen {
				return false // the last read was later
			}
			l, err = a.try(ctx, a.newProposal())
			var newer *HeldError
			if newer, isHeld = errors.AsType[*HeldError](err); isHeld {
				held = newer
			}
			return !isHeld || a.endKeys() != followed
		}, followed.targets(a.c.layout, a.lock)...)
	}
	if l == nil && ctx.Err() != nil {
		held.Err = contextError(ctx)
		return nil, held
	}
	return l, withNames(err, a.lock)
}

func (a *acquisition) notifyAcquired(began time.Time, l *Lock, err error) {
	notify(a.c.opts.Hooks.AcquireEnded, AcquireEnded{Name: a.lock, Context: a.caller, Result: acquireResult(err),
		WaitTime: time.Since(began), Lock: l, Err: err})
}

func acquireResult(err error) Result {
	_, isHeld := errors.AsType[*HeldError](err)
	switch {
	case err == nil:
		return ResultAcquired
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && isHeld,
		errors.Is(err, ErrClosed):
		return ResultGaveUp
	case errors.Is(err, ErrCondition):
		return ResultRefused
	case isHeld:
		return ResultHeld
	}
	return ResultError
}

// reenter looks for a hold of the wanted lock among those under which ctx was made, at any depth. It enters that hold
// again, or returns an [*AlreadyHeldError]. If there is no such hold, both results are nil.
func (a *acquisition) reenter(ctx context.Context) (*Lock, error) {
	a.outer = FromContext(ctx)
	for l := a.outer; l != nil; l = l.outer {
		hold := l.root()
		if hold.wanted != a.lock || hold.c.layout != a.c.layout || hold.c.etcd != a.c.etcd {
			continue
		}
		if a.set.reentrant && hold.set.kind.covers(a.set.kind) {
			if inner := hold.newInnerHandle(a.outer); inner != nil {
				return inner, nil
			}
			continue
		}
		if hold.err() == nil {
			return nil, &AlreadyHeldError{Name: a.lock, CallSite: hold.callSite, Since: hold.began.wall, At: a.c.wall()}
		}
	}
	return nil, nil
}

func checkNotHeld(ctx context.Context, wanted []*acquisition) error {
	for _, a := range wanted {
		if a.set.reentrant {
			return errors.New("several locks that are taken together cannot be Reentrant")
		}
		if _, err := a.reenter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// newInnerHandle returns another handle of the hold; nil if the hold has ended.
func (l *Lock) newInnerHandle(outer *Lock) *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil || l.reentry.released && l.reentry.count == 0 {
		return nil
	}
	l.reentry.count++
	return l.cloneHandle(l.ctx, outer)
}

// cloneHandle returns another handle of the hold, with a context of its own.
func (l *Lock) cloneHandle(parent context.Context, outer *Lock) *Lock {
	clone := &Lock{
		c: l.c, set: l.set, wanted: l.wanted, held: l.held, callSite: l.callSite, began: l.began,
		outer: outer, group: l.group, lost: l.lost, reentry: reentry{of: l},
	}
	clone.ctx, clone.cancel = context.WithCancelCause(context.WithValue(parent, handleKey{}, clone))
	return clone
}

// Locker returns the lock as a [sync.Locker], for code that takes one and cannot be changed: such code does not learn
// that the lock was lost, and does not call [Lock.Alive]. Prefer [Client.Do].
//
// Lock waits as [Client.Lock] does. If it cannot get the lock, because ctx ended, the client was closed or etcd
// refused, it panics with an error that wraps the reason. Unlock panics if the lock is not locked. It logs other
// errors, and the release continues in the background.
//
// lost is called at most once for each Lock, with the error, usually a [*LostError], if the hold ends or may have ended
// while the code runs; if only Unlock discovers that, before Unlock returns. From then on another client may hold the
// lock, so lost should stop the code.
//
// Within the process the Locker behaves like a [sync.Mutex]: one goroutine has it at a time, even after a loss, until
// its Unlock. To take several shares of a semaphore or read-write lock, make one Locker per goroutine.
func (c *Client) Locker(ctx context.Context, name string, lost func(error), opts ...Option) (sync.Locker, error) {
	if lost == nil {
		return nil, errors.New("mutex: a Locker needs a function to call when the lock is lost")
	}
	a, _, err := c.newAcquisition(ctx, name, opts)
	if err == nil && a.set.conditional() {
		err = errors.New("mutex: a Locker waits for the lock, so it takes neither If nor Then")
	}
	if err != nil {
		return nil, err
	}
	return &locker{c: c, ctx: ctx, name: name, lost: lost, opts: opts, turn: make(chan struct{}, 1)}, nil
}

type locker struct {
	c    *Client
	ctx  context.Context
	name string
	lost func(error)
	opts []Option

	turn chan struct{} // has an element from Lock to Unlock
	hold atomic.Pointer[Lock]
}

func (k *locker) Lock() {
	select {
	case k.turn <- struct{}{}:
	case <-k.ctx.Done():
		k.panic(context.Cause(k.ctx))
	}
	l, err := k.c.Lock(k.ctx, k.name, k.opts...)
	if err != nil {
		<-k.turn
		k.panic(err)
	}
	context.AfterFunc(l.Context(), func() {
		if cause := context.Cause(l.Context()); cause != ErrUnlocked {
			k.lost(cause)
		}
	})
	k.hold.Store(l)
}

func (k *locker) Unlock() {
	l := k.hold.Swap(nil)
	if l == nil {
		k.panic(errors.New("unlock of a Locker that is not locked"))
	}
	defer func() { <-k.turn }()
	err := l.Unlock()
	switch noticed := context.Cause(l.Context()) != ErrUnlocked; {
	case err == nil || noticed:
	case errors.Is(err, ErrNotHeld):
		k.lost(err)
	default:
		k.c.log(slog.LevelWarn, "a Locker was not released yet", l.logAttributes(slog.Any("error", err))...)
	}
}

func (k *locker) panic(err error) { panic(fmt.Errorf("mutex: Locker of %q: %w", k.name, err)) }
