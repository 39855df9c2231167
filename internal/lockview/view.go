// Package lockview keeps an in-memory snapshot of all held locks, from which the rest of the process reads.
//
// The snapshot has one writer: a list of etcd's keys, and the watch that follows it. It shows only whole revisions,
// never half a record. A removal goes to etcd, and its effect comes back through the watch. When the watch ends, the
// view lists again and reconciles. It also does so every few minutes, because etcd servers have lost events before.
//
// Readers are level-triggered: [View.Changed] only says that something changed.
//
// Terms: a foreign key is one that the layout does not know; a misplaced record consists of foreign keys that look like
// a lock's. A list is one reading of all keys, a comparison is a list while the watch runs, and to reconcile is to make
// the snapshot match a list.
//
// view.go has what readers call, run.go the writer. Both use snapshot.go and its parts, which know nothing of the view.
package lockview

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Source is what the snapshot is read from: methods of a lockstore.Store.
type Source struct {
	// List calls each for every key below the prefix, in key order, at the revision that it returns.
	List func(ctx context.Context, each func(protocol.KV)) (revision int64, err error)
	// Watch calls each with the events below a prefix of every revision after the given one, and every few seconds
	// without events as a sign of life. It returns why it ended; an error with a method Reason() string is counted
	// under that reason.
	Watch func(ctx context.Context, prefix string, after int64,
		each func(revision int64, events []protocol.Event)) error
	// Ending reads how a hold ended while the view was not watching; nil if unknown.
	Ending func(ctx context.Context, id string) (*metadata.Ending, error)
}

// Options are the optional settings of a View.
type Options struct {
	// OnEnded is called for every hold that ended, in order, after it has left the snapshot. ending is nil if the
	// holder released the lock, or if the ending is unknown. It must not block: the snapshot stands still meanwhile.
	OnEnded func(r *metadata.Record, ending *metadata.Ending)
	// OnAcquired is called for every hold that the watch saw begin, with its place in the queue if it waited. It must
	// not block either.
	OnAcquired func(r *metadata.Record, w metadata.Waiter)
	// OnHolderDied is called for every hold whose holder was proven to have ended, after the snapshot shows it. It must
	// not block either.
	OnHolderDied func(r *metadata.Record)
	// Keep selects the locks to keep, by the keys that a list or a new hold shows, without their backtraces; all if
	// nil. A view with Keep has only records and statements.
	Keep func([]metadata.Field) bool
	// Leased returns the locks of other libraries; nil: none are followed.
	Leased func() []*locks.Row
	// RelistEvery is how often the snapshot is compared with a new list; five minutes if zero.
	RelistEvery time.Duration
	// ProgressInterval is how often the source gives a sign of life; 0: silence of etcd changes no judgement.
	ProgressInterval time.Duration
	// Fault returns why etcd cannot be used, in a word and in a sentence, if that is known better than from the errors
	// of the source; otherwise both are empty.
	Fault func() (class, cause string)
	// Explain turns an error of the source into a sentence for operators; if nil, the error's own text is used.
	Explain func(error) string
	Log     zerolog.Logger
}

// View serves the snapshot. Its methods are safe for concurrent use, cheap, and never wait for etcd. Their results are
// shared: never modify them.
type View struct {
	layout   protocol.Layout
	src      Source
	opt      Options
	began    time.Time
	loadOnly bool // see Load

	mu       sync.Mutex
	snap     *snapshot
	locks    []*metadata.Record           // nil when out of date
	shown    []*metadata.Record           // nil when out of date
	queues   map[string][]metadata.Waiter // nil when out of date
	delays   []metadata.LockDelay         // nil when out of date
	changed  chan struct{}                // nil while no reader waits
	state    state
	stats    Stats
	reported []diagnosis.Unclaimed // unclaimed locks, as last reported
	touched  touched               // keys that changed since the running comparison began; nil if none is running
}

// New returns a view that is empty until Run has listed the keys.
func New(l protocol.Layout, src Source, o Options) *View {
	if o.RelistEvery <= 0 {
		o.RelistEvery = 5 * time.Minute
	}
	if o.Explain == nil {
		o.Explain = func(err error) string { return err.Error() }
	}
	v := &View{layout: l, src: src, opt: o, began: time.Now(), stats: newStats()}
	v.snap = newSnapshot(l)
	v.state.SyncedChangedAt = v.began
	v.state.Cause = "the first list is not done"
	return v
}

// Locks returns the held locks sorted by name. It is the same slice until a lock changes.
func (v *View) Locks() []*metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heldRecords()
}

// All iterates over the held locks, sorted by name.
func (v *View) All() iter.Seq[*metadata.Record] { return slices.Values(v.Locks()) }

// heldRecords is [View.Locks] for callers that hold mu.
func (v *View) heldRecords() []*metadata.Record {
	if v.locks == nil {
		v.locks = v.snap.locks.records()
	}
	return v.locks
}

// Lock returns one lock, or nil if it is not held.
func (v *View) Lock(name string) *metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.snap.locks.get(name)
	if h == nil {
		return nil
	}
	return &h.Record
}

// Queues returns all queues by lock name, the next waiter first. It is the same map until a queue changes.
func (v *View) Queues() map[string][]metadata.Waiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queues == nil {
		v.queues = make(map[string][]metadata.Waiter, len(v.snap.queues))
		for lock, queue := range v.snap.queues {
			v.queues[lock] = queue.inOrder()
		}
	}
	return v.queues
}

// Unlockers returns the running unlockers, sorted by id. Presence records that cannot be read or are no longer
// refreshed are left out.
func (v *View) Unlockers() []metadata.Presence {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]metadata.Presence, 0, len(v.snap.unlockers))
	for _, instance := range slices.Sorted(maps.Keys(v.snap.unlockers)) {
		if u := v.snap.unlockers[instance]; u.runs(v.state.HeardAt) {
			all = append(all, u.Presence)
		}
	}
	return all
}

// Foreign returns some of the foreign keys below the prefix, their total number, and how many of them contend for locks
// of other libraries, of which no more than 10,000 count.
func (v *View) Foreign() (sample []string, total, others int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := &v.snap.foreign
	return slices.Sorted(maps.Keys(f.sample)), f.total, len(f.others)
}

// Changed returns a channel that is closed at the next change of anything the view shows. Signs of life do not count.
func (v *View) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// announce wakes all readers that wait for a change. The caller holds mu.
func (v *View) announce() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Clock returns the time since the view was created, on the monotonic clock. [metadata.Seen] is stamped with it.
func (v *View) Clock() time.Duration { return time.Since(v.began) }

// RecordsWithMisplaced returns what pages and metrics show: the held locks, and the misplaced records, each under the
// prefix of its keys unless a lock has that name. It is sorted by name, and the same slice until something changes. To
// judge or remove locks, or to wait, use [View.Locks].
func (v *View) RecordsWithMisplaced() []*metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shown != nil {
		return v.shown
	}
	v.shown = v.heldRecords()
	if misplaced := v.misplaced(); len(misplaced) > 0 {
		v.shown = slices.Concat(v.shown, misplaced)
		slices.SortFunc(v.shown, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	}
	return v.shown
}

// misplaced returns the misplaced records that are shown. The caller holds mu.
func (v *View) misplaced() []*metadata.Record {
	var all []*metadata.Record
	for _, m := range v.snap.misplaced.byPrefix {
		if m.rec != nil && v.snap.locks.get(m.rec.Name) == nil {
			all = append(all, m.rec)
		}
	}
	return all
}

// Fresh returns how current the snapshot is.
func (v *View) Fresh() protocol.Freshness {
	v.mu.Lock()
	f := v.state.at(time.Now())
	v.mu.Unlock()
	f.ProgressInterval = v.opt.ProgressInterval
	if !f.Synced && v.opt.Fault != nil {
		class, cause := v.opt.Fault()
		f.Class = class
		f.Cause = cmp.Or(cause, f.Cause)
	}
	return f
}

// CheckSynced returns an error while the snapshot is not current, once it was listed: a condition of readiness. To keep
// a program in rotation that serves the last known state while etcd is unavailable, leave the condition out.
func (v *View) CheckSynced() error {
	if f := v.Fresh(); !f.Synced && !f.HeardAt.IsZero() {
		return errors.New("the view of the locks is not current: " + f.Cause)
	}
	return nil
}

// CheckListed returns an error until all locks have been read once: a condition of readiness.
func (v *View) CheckListed() error {
	if f := v.Fresh(); f.HeardAt.IsZero() {
		return errors.New("not read yet: " + f.Cause)
	}
	return nil
}

// Stats returns a copy of the counts. All reasons are present from the start.
func (v *View) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stats.copied()
}

// Delays returns the lock delays, sorted by the name of the lock or share whose hold ended. It is the same slice until
// one begins or ends.
func (v *View) Delays() []metadata.LockDelay {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.delays == nil {
		v.delays = slices.SortedFunc(maps.Values(v.snap.delays), func(a, b metadata.LockDelay) int {
			return strings.Compare(a.Name, b.Name)
		})
	}
	return v.delays
}

// Free returns the locks that nobody holds although clients wait, with the time since when, on [View.Clock]. It leaves
// out locks of which shares are held, because tickets do not say how much their owners want, and locks that are in a
// delay, or one of whose shares is.
//
// followed is since when etcd has been watched without interruption; synced is false while it is not.
func (v *View) Free() (since map[string]time.Duration, followed time.Duration, synced bool) {
	synced = v.Fresh().Synced
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.snap.free), max(0, v.state.SyncedChangedAt.Sub(v.began)), synced
}

// Snapshots returns the read model of the view. policy returns how locks are judged; if nil, as the running unlockers
// publish it.
func (v *View) Snapshots(policy func() diagnosis.CombinedPolicy) *locks.Snapshots {
	if policy == nil {
		policy = func() diagnosis.CombinedPolicy {
			return diagnosis.CombinePolicies(v.Unlockers())
		}
	}
	return locks.NewSnapshots(locks.Source{Locks: v.RecordsWithMisplaced, Queues: v.Queues, Delays: v.Delays,
		Unclaimed: v.unclaimed, Leased: v.opt.Leased, Combined: policy, Clock: v.Clock})
}

// Judge returns the read model of some records alone: held ones by name, or those of ended holds.
func (v *View) Judge(records []*metadata.Record, policy diagnosis.CombinedPolicy, now time.Time) *locks.Snapshot {
	return locks.Build(locks.Input{Locks: records, Queues: v.Queues(), Combined: policy},
		staleness.Moment{Wall: now, Mono: v.Clock()})
}

// unclaimed returns the locks that no waiter takes. It remembers which ones it has reported, so that an interruption of
// the watch does not end an alert.
func (v *View) unclaimed() []diagnosis.Unclaimed {
	seen := diagnosis.FreeLocks{}
	if seen.Free, seen.Followed, seen.Synced = v.Free(); len(seen.Free) > 0 {
		seen.Queues = v.Queues()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	seen.Now = v.Clock()
	seen.Wall = time.Now()
	v.reported = diagnosis.FindUnclaimed(v.reported, seen)
	return v.reported
}
