package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Lock takes the lock. While others hold it or are ahead in the queue, it waits until ctx ends; then the error is a
// [*HeldError] if the holder is known. If ctx does not end it waits forever, even through outages of etcd.
//
// A bad name or option is an error before any request is sent.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, b, err := c.newAcquisition(ctx, name, opts)
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
// for a holder, and waits for etcd no longer than [Options].RequestTimeout.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (l *Lock, err error) {
	a, b, err := c.newAcquisition(ctx, name, opts)
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

// Do takes the lock, waiting for it as [Client.Lock] does, runs fn, and gives the lock back when fn returns or panics.
// The context of fn ends with ctx, or when the lock is lost, with the [*LostError] as its cause; [FromContext] finds
// the handle in it.
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

	ctx, done := l.Under(ctx)
	defer done()
	return fn(ctx)
}

// Under returns a context for work under the lock: it ends with ctx, or when the lock is lost, with the [*LostError] as
// its cause, and [FromContext] finds the handle in it. Call done when the work is over.
func (l *Lock) Under(ctx context.Context) (under context.Context, done context.CancelFunc) {
	held := l.Context()
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, handleKey{}, l))
	detach := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() { detach(); cancel(nil) }
}

// errWaits refuses conditions where the call may wait: they would have to hold when its turn comes, after a ticket, a
// lease and three different transactions, each of which may be repeated.
var errWaits = errors.New("If and Then go with TryLock and TryLockAll: to wait, take the lock and use its Guard in a " +
	"transaction of your own")

// newAcquisition checks what can be checked without etcd and makes the first bid.
func (c *Client) newAcquisition(ctx context.Context, name string, opts []Option) (*acquisition, bid, error) {
	if of := c.opts.ContextOptions; of != nil {
		opts = slices.Concat(of(ctx), opts)
	}
	set, draft, err := c.draft(name, opts)
	if err != nil {
		return nil, bid{}, err
	}
	a := &acquisition{c: c, caller: ctx, lock: name, set: set, draft: draft, site: callSiteOf(draft.Backtrace)}
	b, err := a.bid()
	return a, b, err
}

// notifyAsking calls the hook for an acquisition that begins, and ends no later than ctx.
func (a *acquisition) notifyAsking(ctx context.Context) {
	if hook := a.c.opts.Hooks.Asking; hook != nil {
		hook(Asking{Lock: a.lock, Context: ctx})
	}
}

// notifyAcquired calls the hook for the end of an acquisition that began at this time.
func (a *acquisition) notifyAcquired(began time.Time, l *Lock, err error) {
	if hook := a.c.opts.Hooks.Acquired; hook != nil {
		defer unlockOnPanic(l)()
		hook(Acquired{Lock: a.lock, Context: a.caller, Result: acquireResult(err), Waited: time.Since(began), Hold: l,
			Err: err})
	}
}

// unlockOnPanic returns a function that gives the locks back when a hook panics: nobody will ever have their handles.
func unlockOnPanic(locks ...*Lock) func() {
	return func() {
		if value := recover(); value != nil {
			for _, l := range locks {
				if l != nil {
					l.Unlock()
				}
			}
			panic(value)
		}
	}
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
