// Package trends asks Prometheus, whose memory is longer, who waited for a lock in the last day.
package trends

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A day is remembered in slots.
const (
	Slot = 5 * time.Minute
	day  = 24 * time.Hour
)

// Sample is how many waited at most within the slot that begins at a time, as somebody else remembers it.
type Sample struct {
	At time.Time
	N  int
}

// Remote asks somebody else, such as Prometheus, who waited for a lock in the last day. A page never waits for it for
// longer than [Patience]: an answer that comes later is for the next page.
type Remote struct {
	ask func(ctx context.Context, lock string, from, to time.Time) ([]Sample, error)

	mu    sync.Mutex
	known map[string]*answer
	busy  int
}

// Patience is how long a page waits.
const Patience = 300 * time.Millisecond

const (
	keptFor    = 30 * time.Second
	askTimeout = 2 * time.Second
	maxKept    = 200 // answers, of 12 kB each
	maxAsking  = 8   // questions at a time
)

// answer is what was answered about one lock, last.
type answer struct {
	samples []Sample
	err     error
	at      time.Time
	done    chan struct{} // closed when it has come
}

// The reasons why there is no answer.
var (
	ErrLate = errors.New("no answer within 300ms")
	errBusy = errors.New("too many questions at a time")
)

// NewRemote returns a Remote that asks this function, for the slots that begin from one time to another, inclusive.
func NewRemote(ask func(ctx context.Context, lock string, from, to time.Time) ([]Sample, error)) *Remote {
	return &Remote{ask: ask, known: map[string]*answer{}}
}

// Lock is the last day of a lock; empty if nothing is known of it. It is shared: never write to it.
func (r *Remote) Lock(ctx context.Context, lock string, now time.Time) ([]Sample, error) {
	a := r.about(ctx, lock, now)
	if a == nil {
		return nil, errBusy
	}
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	select {
	case <-a.done:
		return a.samples, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-patience.C:
		return nil, ErrLate
	}
}

// about returns the answer about a lock, which may be on its way; nil if it cannot be asked for now.
func (r *Remote) about(ctx context.Context, lock string, now time.Time) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.known[lock]; a != nil && now.Sub(a.at) < keptFor && !now.Before(a.at) {
		return a
	}
	if r.busy >= maxAsking {
		return nil
	}
	for name := range r.known {
		if len(r.known) < maxKept {
			break
		}
		delete(r.known, name) // any
	}
	a := &answer{at: now, done: make(chan struct{})}
	r.known[lock] = a
	r.busy++
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	go func() {
		defer cancel()
		last := now.Truncate(Slot)
		a.samples, a.err = r.ask(ctx, lock, last.Add(Slot-day), last)
		close(a.done)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy--
	}()
	return a
}
