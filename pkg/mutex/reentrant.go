package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Reentrant has [Client.Lock], [Client.TryLock] and [Client.Do] enter the hold of that lock under which ctx was made,
// by [Client.Do] or [Lock.Context], if there is one. They return another handle of it at once. The lock is given back,
// and the context of the outer handle ends, when the last handle is unlocked.
//
// The other options of the inner call are ignored: purpose and times are the outer one's. Without this option the call
// fails with an [*AlreadyHeldError].
func Reentrant() Option { return func(s *settings) { s.reentrant = true } }

// checkReentrant refuses what would not be done if the hold existed already.
func (s *settings) checkReentrant() error {
	if s.reentrant && s.conditional() {
		return errors.New("If and Then cannot be Reentrant: a hold that is entered again is not taken again")
	}
	return nil
}

// AlreadyHeldError says that the caller would wait for itself: its context was made under a hold of the lock that it
// asks for. With [Reentrant] it would enter that hold again.
type AlreadyHeldError struct {
	Lock  string
	Where string    // file and line of the call that took it
	Since time.Time // wall clock
	At    time.Time // of this error, wall clock
}

// Error is one line.
func (e *AlreadyHeldError) Error() string {
	return fmt.Sprintf("lock %q is already held by you at %s, taken %s", e.Lock, e.Where,
		text.RelativeWords(e.Since, e.At))
}

// again looks for a hold of the wanted lock among those under which ctx was made, at whatever depth: it is entered
// again, or the error is an [*AlreadyHeldError]. Without one both are nil.
func (a *acquisition) again(ctx context.Context) (*Lock, error) {
	a.outer = FromContext(ctx)
	for l := a.outer; l != nil; l = l.outer {
		hold := l.root()
		if hold.asked != a.lock || hold.c.layout != a.c.layout || hold.c.etcd != a.c.etcd {
			continue
		}
		if a.set.reentrant && hold.covers(a) {
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

// covers reports whether the hold allows all that the acquisition is for: a reader may not write, and two permits are
// not three.
func (l *Lock) covers(a *acquisition) bool {
	has := l.set.kind
	wants := a.set.kind
	switch {
	case has.name == wants.name:
		return wants.weight <= has.weight
	case has.name == metadata.HoldsExclusive:
		return wants.shared()
	}
	return false
}

// alone is an error unless this handle is the only one of its hold.
func (l *Lock) alone() error {
	hold := l.root()
	if l.forGroup {
		return errors.New("this handle stands for several locks, and UnlockWith gives one back: take it from Locks.All")
	}
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if l != hold || hold.reentry.count > 0 {
		return errors.New("the hold was entered again, and other handles rely on it: unlock all but the first one " +
			"before")
	}
	return nil
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

// root is the handle that the acquisition made.
func (l *Lock) root() *Lock {
	if l.reentry.of != nil {
		return l.reentry.of
	}
	return l
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
		c: l.c, set: l.set, asked: l.asked, held: l.held, site: l.site, began: l.began,
		outer: outer, group: l.group, lost: l.lost, reentry: reentry{of: l},
	}
	inner.ctx, inner.cancel = context.WithCancelCause(context.WithValue(l.ctx, handleKey{}, inner))
	return inner
}

// exit gives one handle of the hold back, and the hold with the last one.
func (l *Lock) exit() error {
	hold := l.root()
	if l != hold {
		l.cancel(ErrUnlocked)
	}
	hold.mu.Lock()
	if l == hold {
		hold.reentry.released = true
	} else {
		hold.reentry.count--
	}
	last := hold.reentry.released && hold.reentry.count == 0
	hold.mu.Unlock()
	if !last {
		if lost, isLost := hold.err().(*LostError); isLost {
			return lost
		}
		return nil
	}
	return hold.release()
}
