package mutex

import (
	"context"
	"errors"
	"fmt"
)

// Do runs fn while it holds the lock, waiting for it as [Client.Lock] does. The context of fn ends with ctx and when
// the lock is lost, with the [*LostError] as its cause; [FromContext] finds the handle in it.
//
// The error joins those of fn and of the lock: nil means that fn succeeded and that the lock was held throughout. The
// lock is given back when fn returns or panics.
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

// Under is ctx for work under the lock: it also ends when the lock is lost, with the [*LostError] as its cause, and
// [FromContext] finds the handle in it. Call done when the work is over.
func (l *Lock) Under(ctx context.Context) (under context.Context, done context.CancelFunc) {
	held := l.Context()
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, handleKey{}, l))
	detach := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() { detach(); cancel(nil) }
}
