package cli

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// call is a call of the library that takes a lock and returns what it took.
type call[T any] func(ctx context.Context, options ...mutex.Option) (T, error)

// take takes the lock, waiting for it as long as --wait says. try does not wait, wait does.
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
	case err == nil || !t.wait.outlastsOutage() || ctx.Err() != nil || !isAway(err):
		return taken, s.takeError(ctx, name, err)
	default: // etcd went away just now: the wait goes on through that
		s.app.mention("waiting: %s", etcdconn.Explain(err))
	}
	reporter := &waitReporter{report: func(w mutex.Waiting) { s.app.mention("waiting: %v", t.standing(w)) }}
	defer reporter.stop()
	taken, err = wait(ctx, mutex.OnWait(reporter.update))
	return taken, s.takeError(ctx, name, err)
}

// worthWaiting is the reason not to wait for the lock, or nil: no wait was asked for, or it would never end.
func (t *takeFlags) worthWaiting(held *mutex.HeldError) error {
	switch {
	case waitsForItself(held, os.Getenv(envUUID)):
		return heldf("%s is held on behalf of this very command (MUTEX_UUID): waiting for it would never end",
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

// reportEvery is how often the reports about a wait may come.
const reportEvery = 3 * time.Second

// waitReporter reports how a wait stands: at once when it begins, then the newest news, at most once per reportEvery.
type waitReporter struct {
	report func(mutex.Waiting)

	mu     sync.Mutex
	newest mutex.Waiting
	last   time.Time
	later  *time.Timer // reports the newest; nil when it was reported
	over   bool
}

// update takes news.
func (t *waitReporter) update(w mutex.Waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest = w
	if t.later == nil && !t.over {
		t.later = time.AfterFunc(max(0, reportEvery-time.Since(t.last)), t.flush)
	}
}

func (t *waitReporter) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later, t.last = nil, time.Now(); !t.over {
		t.report(t.newest)
	}
}

// stop ends the reports; none comes after it has returned.
func (t *waitReporter) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.later != nil {
		t.later.Stop()
	}
}

// standing is the state of a wait, in the words of a refusal.
func (k *kindFlags) standing(w mutex.Waiting) *mutex.HeldError {
	held := &mutex.HeldError{Lock: w.Lock, Holder: w.Holder, Holders: w.Holders, At: w.At, Position: w.Position,
		Kind: k.kind()}
	if held.Kind == metadata.HoldsPermits {
		held.Limit = k.semaphore
		held.Weight = max(k.weight, 1)
		records := make([]*metadata.Record, len(w.Holders))
		for i := range w.Holders {
			records[i] = &w.Holders[i].Record
		}
		if u := useOf(records); len(records) == 0 || records[0].Name != w.Lock {
			held.Free = u.free(k.semaphore)
		}
	}
	return held
}

// waitsForItself reports whether the wait cannot end before the hold with this uuid does, under which this command
// runs.
func waitsForItself(held *mutex.HeldError, uuid string) bool {
	if uuid == "" {
		return false
	}
	if held.Holder.UUID == uuid && (held.Kind == "" || held.Holder.Name == held.Lock) {
		return true
	}
	for i := range held.Holders {
		mine := &held.Holders[i]
		if mine.UUID != uuid {
			continue
		}
		return held.Kind == metadata.HoldsExclusive || held.Kind == metadata.HoldsPermits &&
			held.Weight > held.Limit-mine.Permits()
	}
	return false
}
