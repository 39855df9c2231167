package etcdlocks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Options are the settings of a Watcher.
type Options struct {
	Explain func(error) string // turns an error of the source into a sentence for operators
	// OnEnded, if not nil, is called for every hold whose end was watched. An ending without a cause is of an unknown
	// one.
	OnEnded func(*locks.Leased, *metadata.Ending)
	Log     zerolog.Logger
}

// Watcher follows the locks below some prefixes. Its methods are safe for concurrent use and never wait for etcd. Their
// results are shared: never modify them.
type Watcher struct {
	own    protocol.Layout
	source Source
	opt    Options
	views  map[string]*lockview.View // by prefix

	mu      sync.Mutex
	holds   map[string]hold // by key
	leases  map[int64]*lease
	changed []<-chan struct{} // of the views, when the locks were built
	locks   []*locks.Leased   // nil when out of date
}

// hold is what was seen of a hold.
type hold struct {
	revision int64
	seen     time.Time // when it was first seen
	since    time.Time // when it was seen to begin; zero = before it was watched
}

// New returns a watcher that is empty until Run or Load has read the keys. It leaves out the keys of our own locks.
func New(prefixes []string, own protocol.Layout, s Source, o Options) *Watcher {
	w := &Watcher{own: own, source: s, opt: o, views: map[string]*lockview.View{}, holds: map[string]hold{},
		leases: map[int64]*lease{}}
	for _, prefix := range prefixes {
		covered := func(by string) bool { return by != prefix && by != "" && strings.HasPrefix(prefix, by) }
		if prefix != "" && !slices.ContainsFunc(prefixes, covered) {
			w.views[prefix] = lockview.New(own, w.below(prefix), lockview.Options{Explain: o.Explain,
				Log: o.Log.With().Str("prefix", prefix).Logger()})
		}
	}
	return w
}

// Run follows the locks until ctx ends, then returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, view := range w.views {
		running.Go(func() { _ = view.Run(ctx) }) // ends only with the context
	}
	running.Go(func() { w.readLeases(ctx) })
	running.Wait()
	return nil
}

// Load reads the locks once, and the leases of at most maxOnce holders.
func (w *Watcher) Load(ctx context.Context) error {
	for _, view := range w.views {
		if err := view.Load(ctx); err != nil {
			return err
		}
	}
	w.readDue(ctx, maxOnce)
	return ctx.Err()
}

// Problems returns why locks are not current, a sentence for each prefix.
func (w *Watcher) Problems() (all []string) {
	for _, prefix := range slices.Sorted(maps.Keys(w.views)) {
		if fresh := w.views[prefix].Fresh(); !fresh.Synced {
			all = append(all, fmt.Sprintf("The locks below %s are not current: %s.", text.Visible(prefix), fresh.Cause))
		}
	}
	return all
}

// Locks returns the locks by name. It is the same slice until one changes.
func (w *Watcher) Locks() []*locks.Leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locks != nil && !slices.ContainsFunc(w.changed, isClosed) {
		return w.locks
	}
	w.changed = nil
	now := time.Now()
	found := map[string]*locks.Leased{} // by key
	for _, view := range w.views {
		w.changed = append(w.changed, view.Changed())
		for _, queue := range view.Queues() {
			found[keyOf(&queue[0])] = w.leased(queue, now)
		}
	}
	for key := range w.holds {
		if found[key] == nil {
			delete(w.holds, key)
		}
	}
	w.locks = slices.AppendSeq([]*locks.Leased{}, maps.Values(found))
	slices.SortFunc(w.locks, func(a, b *locks.Leased) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
	})
	return w.locks
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// leased returns the lock with this queue, whose first waiter holds it. The caller holds mu.
func (w *Watcher) leased(queue []metadata.Waiter, now time.Time) *locks.Leased {
	first := &queue[0]
	key := keyOf(first)
	seen := w.holds[key]
	if seen.revision != first.Revision {
		seen = hold{revision: first.Revision, seen: now}
		w.holds[key] = seen
	}
	l := &locks.Leased{Name: first.Name, Single: first.ID == single, Key: key, Value: first.Owner,
		Lease: leaseOf(first), Token: first.Revision, Since: seen.since, Seen: seen.seen, Waiters: queue[1:]}
	if read := w.leases[l.Lease]; read != nil {
		l.TTL = read.TTL
		l.Keys = read.Keys
		l.Expires = read.expires
		l.Why = read.why
	}
	return l
}

// passed notes that a lock has another holder, or none, if it has.
func (w *Watcher) passed(before, after []metadata.Waiter) {
	if len(before) > 0 && len(after) > 0 && before[0].Revision == after[0].Revision {
		return
	}
	now := time.Now()
	w.mu.Lock()
	var ended *locks.Leased
	cause := ""
	if len(before) > 0 {
		ended = w.leased(before, now)
		cause = w.leases[ended.Lease].howEnded(now)
	}
	if len(after) > 0 {
		w.holds[keyOf(&after[0])] = hold{after[0].Revision, now, now}
	}
	w.locks = nil
	w.mu.Unlock()
	if ended != nil && w.opt.OnEnded != nil {
		w.opt.OnEnded(ended, new(lockrecord.NewEnding(ended.Record(), cause, "", "", now)))
	}
}
