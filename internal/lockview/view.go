// Package lockview keeps an in-memory snapshot of all held locks, which everything else in the process reads.
//
// The snapshot has one writer: a list of etcd's keys, and the watch that follows it. It shows whole revisions only,
// never half a record. Whoever removes a lock talks to etcd and sees the effect come back here. When the watch ends,
// the view lists again and reconciles. It also does so every few minutes, because etcd servers have lost events before.
//
// Readers are level-triggered: [View.Changed] only says "look again".
package lockview

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source is where the snapshot comes from: methods of a lockstore.Store.
type Source struct {
	// List calls each for every key below the prefix, in key order, as of the revision that it returns.
	List func(ctx context.Context, each func(protocol.KV)) (revision int64, err error)
	// Watch calls each with the events of every revision after the given one, and every few seconds without events as a
	// sign of life. It returns why it ended; an error with a method Reason() string is counted under that reason.
	Watch func(ctx context.Context, after int64, each func(revision int64, events []protocol.Event)) error
	// Ending reads how a hold ended, for holds that ended while the view was not watching. Nil: unknown.
	Ending func(ctx context.Context, id string) (*metadata.Ending, error)
}

// Options are the optional settings of a View.
type Options struct {
	// Ended is called for every hold that ended, in order, after it has left the snapshot. ending is nil if the holder
	// released the lock, or if the ending is unknown. It must not block: the snapshot stands still meanwhile.
	Ended func(r *metadata.Record, ending *metadata.Ending)
	// Died is called for every hold whose holder was proven to have ended, after the snapshot shows it. It must not
	// block either.
	Died func(r *metadata.Record)
	// RelistEvery is how often the snapshot is compared with a new list. Zero: five minutes.
	RelistEvery time.Duration
	// Explain turns an error of the source into a sentence for operators. Nil: the error's own text.
	Explain func(error) string
	Log     zerolog.Logger
}

// View serves the snapshot. Its methods are safe for concurrent use, cheap, and never wait for etcd. What they return
// is shared: never write to it.
type View struct {
	layout protocol.Layout
	src    Source
	opt    Options
	began  time.Time
	intern interner

	mu      sync.Mutex
	snap    *snapshot
	locks   []*metadata.Record           // nil when out of date
	shown   []*metadata.Record           // nil when out of date
	moves   uint64                       // of the snapshot, as of shown
	queues  map[string][]metadata.Waiter // nil when out of date
	changed chan struct{}                // nil while nothing waits
	state   state
	stats   Stats
	touched *touched // what changed since the running comparison began; nil when none is running
}

// New returns a view that is empty until Run has listed the keys.
func New(l protocol.Layout, src Source, o Options) *View {
	if o.RelistEvery <= 0 {
		o.RelistEvery = 5 * time.Minute
	}
	if o.Ended == nil {
		o.Ended = func(*metadata.Record, *metadata.Ending) {}
	}
	if o.Died == nil {
		o.Died = func(*metadata.Record) {}
	}
	if o.Explain == nil {
		o.Explain = func(err error) string { return err.Error() }
	}
	v := &View{layout: l, src: src, opt: o, began: time.Now(), stats: newStats()}
	v.snap = newSnapshot(l, &v.intern)
	v.state.since = v.began
	v.state.cause = "not read yet"
	return v
}

// Locks returns the held locks sorted by name. It is the same slice until a lock changes.
func (v *View) Locks() []*metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.held()
}

// held is [View.Locks] for callers that hold mu.
func (v *View) held() []*metadata.Record {
	if v.locks == nil {
		v.locks = v.snap.locks.records()
		v.shown = nil
	}
	return v.locks
}

// Lock returns one lock, or nil if it is not held.
func (v *View) Lock(name string) *metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	it, _ := v.snap.locks.get(name)
	return it.rec
}

// Waiters returns the queue of a lock, first in line first.
func (v *View) Waiters(name string) []metadata.Waiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.snap.queues.of(name)
}

// Queues returns all queues by lock name. It is the same map until a queue changes.
func (v *View) Queues() map[string][]metadata.Waiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queues == nil {
		v.queues = make(map[string][]metadata.Waiter, len(v.snap.queues))
		for lock := range v.snap.queues {
			v.queues[lock] = v.snap.queues.of(lock)
		}
	}
	return v.queues
}

// Unlockers returns the running unlockers, sorted by id. Presence records that cannot be read or are no longer
// refreshed are left out.
func (v *View) Unlockers() []Unlocker {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]Unlocker, 0, len(v.snap.unlockers))
	for _, instance := range slices.Sorted(maps.Keys(v.snap.unlockers)) {
		if u := v.snap.unlockers[instance]; u.runs(v.state.heard) {
			all = append(all, u)
		}
	}
	return all
}

// Foreign returns some of the keys below the prefix that the layout does not know, and their total number.
func (v *View) Foreign() (sample []string, total int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.snap.foreignSample)), v.snap.foreignTotal
}

// Changed returns a channel that is closed at the next change of anything the view shows. Signs of life are no change.
func (v *View) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// announce wakes everything that waits for a change. The caller holds mu.
func (v *View) announce() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Clock returns the time since the view was created, on the monotonic clock. [metadata.Seen] is stamped with it.
func (v *View) Clock() time.Duration { return time.Since(v.began) }

// backoff returns how long to wait after this many consecutive failures: 100 ms, doubled each time up to 5 s, half of
// it random.
func backoff(failures int) time.Duration {
	d := min(5*time.Second, 100*time.Millisecond<<min(failures, 6))
	return d/2 + rand.N(d/2)
}
