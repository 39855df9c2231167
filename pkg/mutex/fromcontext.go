package mutex

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// FromContext is the handle of the innermost hold under which ctx was made, by [Client.Do], [Lock.Context] or
// [Locks.Context]. Without one it is nil, a handle whose methods can all be called: they return an [ErrNotHeld].
//
// Below [Client.LockAll] and [Client.TryLockAll] it stands for all of the locks: Alive extends all, Context and Lost
// end with the first that is lost, Deadline is the earliest, Unlock gives all back, and Token is the greatest, which
// every later holder of any of them exceeds. Fence writes in the same etcd with [Lock.Guards]. Name and UUID are those
// of the first lock.
func FromContext(ctx context.Context) *Lock {
	l, _ := ctx.Value(handleKey{}).(*Lock)
	return l
}

type handleKey struct{}

// errNoHold is what a handle of no hold says.
var errNoHold error = noHold{}

type noHold struct{}

func (noHold) Error() string {
	return "no lock is held here: the context is neither that of Do nor that of a lock"
}

func (noHold) Is(target error) bool { return target == ErrNotHeld }

// none reports whether the handle is nil, or was not made by this package.
func (l *Lock) none() bool { return l == nil || l.c == nil }

// noContext is the context of a handle of no hold: it has ended.
func noContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNoHold)
	return ctx
}

// never is a compare that never holds.
func never() clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision("\x00"), "<", 0) }

// handle is the handle that stands for all locks.
func (g *Locks) handle() *Lock {
	first := g.locks[0]
	if len(g.locks) == 1 {
		return first
	}
	return &Lock{
		c: first.c, set: first.set, asked: first.asked, held: first.held, site: first.site, began: first.began,
		outer: first.outer, group: g, forGroup: true, lost: make(chan struct{}), reentry: reentry{of: first},
	}
}
