package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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

// barge takes the lock as soon as it is free, whoever else waits for it.
func (a *acquisition) barge(ctx context.Context, b bid) (*Lock, error) {
	l, err := a.try(ctx, b)
	held, isHeld := errors.AsType[*HeldError](err)
	if !isHeld {
		return l, a.explain(err)
	}
	defer a.report(ctx)()
	a.c.retry.Follow(ctx, waiterRecheck, func(events []*clientv3.Event) bool {
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
