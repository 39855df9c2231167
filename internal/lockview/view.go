// Package lockview keeps the locks that are held now in memory, as one picture that everybody else reads.
//
// The picture has one writer: a list of etcd and the watch that follows it. It shows whole revisions only, so nobody
// ever sees half a record. Whoever removes a lock talks to etcd and sees the effect come back here. When the watch
// ends, for whatever reason, the view lists again and compares; and it does so every few minutes without a reason,
// because servers have lost events before.
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

// Source is where the picture comes from: the verbs of package lockstore.
type Source struct {
	// List calls each for every key below the prefix, in the order of keys, all as they were at the revision that it
	// returns.
	List func(ctx context.Context, each func(protocol.KV)) (revision int64, err error)
	// Watch calls each for the events of every revision after the given one, and without events as a sign of life,
	// every few seconds. It returns why it ended; an error with a method Reason() string is counted by that.
	Watch func(ctx context.Context, after int64, each func(revision int64, events []protocol.Event)) error
	// Ending reads how a hold ended that was gone when the view came back. Nil: nobody asks.
	Ending func(ctx context.Context, id string) (*metadata.Ending, error)
}

// Options are what a View can do without.
type Options struct {
	// Ended is called for every hold that went, in order, after it is gone from the picture. ending is nil when the
	// holder released it, and when nobody could tell. It must not block: the picture stands still meanwhile.
	Ended func(r *metadata.Record, ending *metadata.Ending)
	// RelistEvery is how often the picture is compared with a new list. Zero: five minutes.
	RelistEvery time.Duration
	// Explain says for people what an error of the source means. Nil: its own text.
	Explain func(error) string
	Log     zerolog.Logger
}

// View is the picture. Its methods are safe for concurrent use, cheap, and never wait for etcd. What they return is
// shared: never write to it.
type View struct {
	layout protocol.Layout
	src    Source
	opt    Options
	began  time.Time
	intern interner

	mu      sync.Mutex
	pic     *picture
	locks   []*metadata.Record           // nil when out of date
	shown   []*metadata.Record           // nil when out of date
	moves   uint64                       // of the picture, as of shown
	queues  map[string][]metadata.Waiter // nil when out of date
	changed chan struct{}                // nil while nobody waits
	state   state
	stats   Stats
	touched *touched // what changed since the comparison with a list began; nil when none goes on
}

// New returns a view that is empty until Run has listed.
func New(l protocol.Layout, src Source, o Options) *View {
	if o.RelistEvery <= 0 {
		o.RelistEvery = 5 * time.Minute
	}
	if o.Ended == nil {
		o.Ended = func(*metadata.Record, *metadata.Ending) {}
	}
	if o.Explain == nil {
		o.Explain = func(err error) string { return err.Error() }
	}
	v := &View{layout: l, src: src, opt: o, began: time.Now(), stats: newStats()}
	v.pic = newPicture(l, &v.intern)
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

// held is Locks for a caller that holds mu.
func (v *View) held() []*metadata.Record {
	if v.locks == nil {
		v.locks = v.pic.locks.records()
		v.shown = nil
	}
	return v.locks
}

// Lock returns one lock, or nil when nobody holds it.
func (v *View) Lock(name string) *metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	it, _ := v.pic.locks.get(name)
	return it.rec
}

// Waiters returns the queue of a lock, the first one first.
func (v *View) Waiters(name string) []metadata.Waiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pic.queues.of(name)
}

// Queues returns all queues by lock. It is the same map until a queue changes.
func (v *View) Queues() map[string][]metadata.Waiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queues == nil {
		v.queues = make(map[string][]metadata.Waiter, len(v.pic.queues))
		for lock := range v.pic.queues {
			v.queues[lock] = v.pic.queues.of(lock)
		}
	}
	return v.queues
}

// Unlockers returns the unlockers that run, sorted by id. A record that can not be read, or that nobody writes any
// more, is none.
func (v *View) Unlockers() []Unlocker {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]Unlocker, 0, len(v.pic.unlockers))
	for _, instance := range slices.Sorted(maps.Keys(v.pic.unlockers)) {
		if u := v.pic.unlockers[instance]; u.runs(v.state.heard) {
			all = append(all, u)
		}
	}
	return all
}

// Foreign returns some of the keys below the prefix that fit no layout, and how many there are.
func (v *View) Foreign() (sample []string, total int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.pic.sample)), v.pic.foreign
}

// Changed returns a channel that is closed at the next change of anything that the view shows, but for signs of life.
func (v *View) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// announce wakes those who wait for a change.
func (v *View) announce() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Clock is the time since the view began, on a clock that never jumps: the one of [metadata.Seen].
func (v *View) Clock() time.Duration { return time.Since(v.began) }

// backoff is how long to wait after so many failures in a row: 100 ms doubled each time up to 5 s, and half of it by
// chance.
func backoff(failures int) time.Duration {
	d := min(5*time.Second, 100*time.Millisecond<<min(failures, 6))
	return d/2 + rand.N(d/2)
}
