package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// call is a function of the library that takes a lock.
type call[T any] func(ctx context.Context, options ...mutex.Option) (T, error)

// take takes the lock, and waits for it as long as --wait allows. try does not wait; wait does.
func take[T any](ctx context.Context, s *session, name string, t *takeFlags, try, wait call[T]) (none T, err error) {
	if !t.wait.triesOnce() {
		var stop context.CancelFunc
		ctx, stop = t.wait.withTimeout(ctx)
		defer stop()
	}
	if err := s.waitForEtcd(ctx, t.wait); err != nil {
		return none, err
	}
	taken, err := try(ctx)
	held, isHeld := errors.AsType[*mutex.HeldError](err)
	switch {
	case isHeld:
		if err := t.checkWaiting(held); err != nil {
			return none, err
		}
	case err == nil || !t.wait.outlastsOutage() || ctx.Err() != nil || !isOutage(err):
		return taken, s.takeError(ctx, name, err)
	default: // wait goes on through an outage that has just begun
		s.app.noteUnlessQuiet("waiting: %s", etcdconn.Explain(err))
	}
	reporter := &waitReporter{
		report:  func(w mutex.Waiting) { s.app.noteUnlessQuiet("waiting: %v", t.heldError(w)) },
		refresh: s.refresh,
		states:  make(chan mutex.Waiting, 1),
	}
	reports, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { reporter.run(reports) })
	taken, err = wait(ctx, mutex.OnWait(reporter.update))
	stop()
	reporting.Wait()
	return taken, s.takeError(ctx, name, err)
}

// checkWaiting returns an error if --wait is 0, or the wait would never end.
func (t *takeFlags) checkWaiting(held *mutex.HeldError) error {
	switch {
	case waitsForItself(held, strings.Fields(protocol.Under(os.Getenv))):
		return heldErrorf("%s is held on behalf of this very command: waiting for it would never end",
			text.Visible(held.Name))
	case t.wait.triesOnce():
		return heldErrorf("%w", held)
	}
	return nil
}

// takeError explains why the lock was not taken.
func (s *session) takeError(ctx context.Context, name string, err error) error {
	held, isHeld := errors.AsType[*mutex.HeldError](err)
	switch {
	case err == nil:
		return nil
	case isHeld && errors.Is(ctx.Err(), context.DeadlineExceeded):
		held.Err = nil
		return heldErrorf("gave up waiting: %w", held)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return heldErrorf("gave up waiting for %s", text.Visible(name))
	}
	return s.explain(ctx, "take "+text.Visible(name), err)
}

// refresh returns the state of a wait with the current deadlines of the holders: the library reports new holders, but
// not that they were given more time. It does not read the queue, which may be long.
func (s *session) refresh(ctx context.Context, w mutex.Waiting) (mutex.Waiting, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	doc, _, err := s.store.ReadRecord(request, w.Name)
	current := []metadata.FullRecord{doc}
	if err == nil && len(w.Holders) > 0 {
		current, err = s.store.ReadShares(request, w.Name)
		current = append(current, doc)
	}
	update := func(holder *metadata.FullRecord) {
		same := func(r metadata.FullRecord) bool { return r.Token == holder.Token }
		if i := slices.IndexFunc(current, same); i >= 0 {
			*holder = current[i]
		}
	}
	update(&w.Holder)
	w.Holders = slices.Clone(w.Holders)
	for i := range w.Holders {
		update(&w.Holders[i])
	}
	w.At = s.app.Now()
	return w, err
}

const (
	// reportEvery is the shortest time between two reports about a wait.
	reportEvery = 3 * time.Second
	// refreshEvery is the longest time between two reports, so that the terminal shows the current deadlines.
	refreshEvery = 30 * time.Second
)

// waitReporter reports the state of a wait: at once when it begins, then the newest state at most once per reportEvery,
// and a refreshed one if nothing was reported for refreshEvery.
type waitReporter struct {
	report  func(mutex.Waiting)
	refresh func(context.Context, mutex.Waiting) (mutex.Waiting, error)
	states  chan mutex.Waiting // capacity 1: the newest
}

// update sets the state to report. Its calls are sequential.
func (t *waitReporter) update(w mutex.Waiting) {
	select {
	case <-t.states:
	default:
	}
	t.states <- w
}

// run reports until ctx ends.
func (t *waitReporter) run(ctx context.Context) {
	var known mutex.Waiting
	var renew <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case known = <-t.states:
		case <-renew:
			now, err := t.refresh(ctx, known)
			if err != nil || len(t.states) > 0 { // outages are reported elsewhere
				renew = time.After(refreshEvery)
				continue
			}
			known = now
		}
		t.report(known)
		renew = time.After(refreshEvery)
		sleep(ctx, reportEvery)
	}
}

// heldError returns the state of a wait as the error that the library returns when it does not wait.
func (k *kindFlags) heldError(w mutex.Waiting) *mutex.HeldError {
	held := &mutex.HeldError{Name: w.Name, Holder: w.Holder, Holders: w.Holders, At: w.At, Position: w.Position,
		Kind: k.kind(), NoUnlocker: w.NoUnlocker}
	if held.Kind == metadata.KindSemaphore {
		held.Limit = k.semaphore
		held.Weight = k.weight
		records := make([]*metadata.Record, len(w.Holders))
		for i := range w.Holders {
			records[i] = &w.Holders[i].Record
		}
		if u := protocol.OccupancyOf(records); len(records) == 0 || records[0].Name != w.Name {
			held.Free = max(k.semaphore-u.Permits, 0)
		}
	}
	return held
}

// waitsForItself reports whether this command waits for a lock that is held on its own behalf, by one of the holds
// under which it runs.
func waitsForItself(held *mutex.HeldError, under []string) bool {
	if slices.Contains(under, held.Holder.UUID) && (held.Kind == "" || held.Holder.Name == held.Name) {
		return true
	}
	for i := range held.Holders {
		mine := &held.Holders[i]
		if !slices.Contains(under, mine.UUID) {
			continue
		}
		return held.Kind == metadata.KindExclusive || held.Kind == metadata.KindSemaphore &&
			held.Weight > held.Limit-mine.Permits()
	}
	return false
}
