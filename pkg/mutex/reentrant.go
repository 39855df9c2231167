package mutex

import (
	"context"
	"errors"
)

// again looks for a hold of the wanted lock among those under which ctx was made, at whatever depth: it is entered
// again, or the error is an [*AlreadyHeldError]. Without one both are nil.
func (a *acquisition) again(ctx context.Context) (*Lock, error) {
	a.outer = FromContext(ctx)
	for l := a.outer; l != nil; l = l.outer {
		hold := l.root()
		if hold.wanted != a.lock || hold.c.layout != a.c.layout || hold.c.etcd != a.c.etcd {
			continue
		}
		if a.set.reentrant && hold.set.kind.covers(a.set.kind) {
			if inner := hold.enter(a.outer); inner != nil {
				return inner, nil
			}
			continue
		}
		if hold.err() == nil {
			return nil, &AlreadyHeldError{Lock: a.lock, Where: hold.site.String(), Since: hold.began.wall,
				At: a.c.wall()}
		}
	}
	return nil, nil
}

// already is the error of a caller that holds one of several locks that it wants together.
func already(ctx context.Context, wanted []*acquisition) error {
	for _, a := range wanted {
		if a.set.reentrant {
			return errors.New("several locks that are taken together cannot be Reentrant")
		}
		if _, err := a.again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// enter makes another handle of the hold, nil when it has ended.
func (l *Lock) enter(outer *Lock) *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil || l.reentry.released && l.reentry.count == 0 {
		return nil
	}
	l.reentry.count++
	inner := &Lock{
		c: l.c, set: l.set, wanted: l.wanted, held: l.held, site: l.site, began: l.began,
		outer: outer, group: l.group, lost: l.lost, reentry: reentry{of: l},
	}
	inner.ctx, inner.cancel = context.WithCancelCause(context.WithValue(l.ctx, handleKey{}, inner))
	return inner
}
