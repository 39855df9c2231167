package cli

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// call is one of the library's calls that take a lock: it returns what was taken.
type call[T any] func(ctx context.Context, options ...mutex.Option) (T, error)

// take takes the lock, waiting for it as long as is wanted. The first call does not wait, the second does.
func take[T any](ctx context.Context, s *session, name string, t *takeFlags, try, wait call[T]) (none T, err error) {
	if !t.wait.none() {
		var stop context.CancelFunc
		ctx, stop = t.wait.bound(ctx)
		defer stop()
	}
	if err := s.reach(ctx, t.wait); err != nil {
		return none, err
	}
	taken, err := try(ctx)
	held, isHeld := errors.AsType[*mutex.HeldError](err)
	switch {
	case isHeld:
		if err := t.worthWaiting(held); err != nil {
			return none, err
		}
	case err == nil || !t.wait.outlasts() || ctx.Err() != nil || !isAway(err):
		return taken, s.takeError(ctx, name, err)
	default: // etcd went away just now, and the lock is waited for through that
		s.app.mention("waiting: %s", etcdconn.Explain(err))
	}
	tell := &teller{tell: func(w mutex.Waiting) { s.app.mention("waiting: %v", t.standing(w)) }}
	defer tell.stop()
	taken, err = wait(ctx, mutex.OnWait(tell.hear))
	return taken, s.takeError(ctx, name, err)
}

// worthWaiting is why nobody should wait for the lock: it is not wanted, or would never end.
func (t *takeFlags) worthWaiting(held *mutex.HeldError) error {
	switch {
	case waitsForItself(held, os.Getenv(envUUID)):
		return heldf("%s is held on behalf of this very command (MUTEX_UUID): to wait for it would never end",
			text.Visible(held.Lock))
	case t.wait.none():
		return heldf("%w", held)
	}
	return nil
}

// takeError says why the lock was not taken: held by another in time, the options made no sense, or etcd.
func (s *session) takeError(ctx context.Context, name string, err error) error {
	held, isHeld := errors.AsType[*mutex.HeldError](err)
	switch {
	case err == nil:
		return nil
	case isHeld && errors.Is(ctx.Err(), context.DeadlineExceeded):
		held.Err = nil
		return heldf("gave up waiting: %w", held)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return heldf("gave up waiting for %s", text.Visible(name))
	}
	return s.explain(ctx, "take "+text.Visible(name), err)
}

// tellEvery is how long the person in front of a long line is left in peace.
const tellEvery = 3 * time.Second

// teller tells how a wait stands: at once when it began, then what is newest, at most once in a while.
type teller struct {
	tell func(mutex.Waiting)

	mu     sync.Mutex
	newest mutex.Waiting
	last   time.Time
	later  *time.Timer // tells the newest; nil when that was told
	over   bool
}

// hear is called with news.
func (t *teller) hear(w mutex.Waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest = w
	if t.later == nil && !t.over {
		t.later = time.AfterFunc(max(0, tellEvery-time.Since(t.last)), t.due)
	}
}

func (t *teller) due() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later, t.last = nil, time.Now(); !t.over {
		t.tell(t.newest)
	}
}

// stop ends the telling; nothing is told after it returned.
func (t *teller) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.later != nil {
		t.later.Stop()
	}
}
