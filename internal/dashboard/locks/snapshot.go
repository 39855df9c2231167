// Package locks is the model of what the dashboard shows: a snapshot of the locks held now, and what a query finds in
// it, sorted, counted and cut into pages. It knows nothing of HTTP.
package locks

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/compact"
	"github.com/clustermutex/unlocker/internal/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Snapshot is all locks as they stood at one moment. It is immutable but for its cache of results.
type Snapshot struct {
	Rows    []*Row // by name
	All     Counts // of the rows
	Queues  map[string][]metadata.Waiter
	Cycles  func() []deadlock.Cycle // found when they are first asked for
	Worst   func() *Impact          // the lock that a person should hear of first; nil: there is none
	Next    time.Time               // when a state changes by itself; zero = never
	Version uint64                  // changes with anything that a list shows

	frozen       map[string]time.Time // of several clusters those that are away, and when their states hold
	at           time.Time            // the moment at which the states hold
	locks        []*compact.Record    // of which the snapshot was built
	queueVersion uint64
	changes      changes // since the snapshot before
	results      results
	sorted       sortings
}

// Find returns the lock with this name, or nil.
func (s *Snapshot) Find(name string) *Row {
	i, found := indexOf(s.Rows, name)
	if !found {
		return nil
	}
	return s.Rows[i]
}

// indexOf is where the row of a lock stands, or would stand, among rows that are sorted by name.
func indexOf(rows []*Row, name string) (i int, found bool) {
	return slices.BinarySearchFunc(rows, name, func(r *Row, name string) int { return strings.Compare(r.Name, name) })
}

// Source is where the locks come from.
type Source struct {
	// Locks returns the locks held now, sorted by name. The slice is the same one until something changes.
	Locks  func() []*compact.Record
	Queues func() map[string][]metadata.Waiter // nil: waiters are not recorded
	Policy staleness.Policy
	// Cluster is which one they are in; empty where there is only one.
	Cluster string
}

// Snapshots keeps the newest snapshot. Building one costs in proportion to the locks, so it is built when it is asked
// for and something changed, by one request at a time, and never so often that building takes more than a share of the
// time.
type Snapshots struct {
	source Source
	costly chan struct{}
	mu     sync.Mutex
	last   *Snapshot
	frozen bool      // the last one is of the past
	rest   time.Time // no new snapshot before this
}

// NewSnapshots returns the snapshots of a source.
func NewSnapshots(s Source) *Snapshots {
	return &Snapshots{source: s, costly: make(chan struct{}, maxCostly)}
}

const (
	buildShare = 20          // building takes at most one 20th of the time
	maxRest    = time.Second // but a snapshot is never older than this
)

// Current returns the locks as they stand at a moment: now, or before where what became of them since is not known.
func (s *Snapshots) Current(now time.Time, at staleness.Moment) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	frozen := !at.Wall.Equal(now)
	if s.last != nil && now.Before(s.rest) && !now.Before(s.last.at) && frozen == s.frozen {
		return s.last
	}
	locks := s.source.Locks()
	var queues map[string][]metadata.Waiter
	if s.source.Queues != nil {
		queues = s.source.Queues()
	}
	version := versionOf(queues)
	if s.last != nil && s.last.current(locks, version, at.Wall) {
		return s.last
	}
	start := time.Now()
	s.last = build(s.last, locks, queues, &s.source, at)
	s.last.queueVersion = version
	s.last.results.costly = s.costly
	s.frozen = frozen
	s.rest = now.Add(min(maxRest, buildShare*time.Since(start)))
	return s.last
}

// versionOf is the fingerprint of the waiters.
func versionOf(queues map[string][]metadata.Waiter) uint64 {
	var sum uint64 // of fingerprints, because the queues come in any order
	for lock, queue := range queues {
		h := Hash(xxhash.Sum64String(lock), uint64(len(queue)))
		for _, w := range queue {
			h = Hash(h, uint64(w.Revision))
		}
		sum += h
	}
	return sum
}

// current reports whether a snapshot built now would be the same.
func (s *Snapshot) current(locks []*compact.Record, queueVersion uint64, at time.Time) bool {
	same := len(locks) == len(s.locks) && (len(locks) == 0 || &locks[0] == &s.locks[0])
	return same && queueVersion == s.queueVersion && (s.Next.IsZero() || at.Before(s.Next)) && !at.Before(s.at)
}

// build makes a snapshot. Rows of the last one that did not change are taken over, and so is how they were sorted and
// found.
func build(last *Snapshot, locks []*compact.Record, queues map[string][]metadata.Waiter, from *Source,
	at staleness.Moment) *Snapshot {
	s := &Snapshot{Rows: make([]*Row, len(locks)), at: at.Wall, locks: locks, Queues: queues,
		Cycles: sync.OnceValue(func() []deadlock.Cycle { return deadlock.Find(locks, queues) })}
	var old []*Row
	if last != nil && !at.Wall.Before(last.at) {
		old = last.Rows
		s.sorted.before = last.sorted.finished()
		s.results.before = last.results.finished()
	}
	summaries := make(map[string]Queue, len(queues))
	for lock, queue := range queues {
		summaries[lock] = QueueOf(queue)
	}
	var came, went []*Row
	for _, b := range inPieces(len(locks), func(first, end int) built {
		b := built{rows: s.Rows[first:end]}
		b.build(within(old, locks, first, end), locks[first:end], summaries, from, at)
		return b
	}) {
		s.All.sum(&b.all)
		s.Version += b.version
		s.Next = Earlier(s.Next, b.next)
		came, went = append(came, b.came...), append(went, b.went...)
	}
	s.changes = newChanges(came, went, len(locks))
	s.Worst = sync.OnceValue(s.worst)
	return s
}

// within are the old rows whose names lie from one lock to another.
func within(old []*Row, locks []*compact.Record, from, to int) []*Row {
	place := func(i, end int) int {
		if i == 0 || i == len(locks) {
			return end
		}
		at, _ := indexOf(old, locks[i].Name)
		return at
	}
	return old[place(from, 0):place(to, len(old))]
}

// built is a piece of a snapshot.
type built struct {
	rows       []*Row
	all        Counts
	next       time.Time
	version    uint64 // a sum, so that it does not depend on the pieces
	came, went []*Row
}

func (b *built) build(old []*Row, locks []*compact.Record, summaries map[string]Queue, from *Source,
	at staleness.Moment) {
	for i, lock := range locks {
		for len(old) > 0 && old[0].Name < lock.Name {
			b.went, old = append(b.went, old[0]), old[1:]
		}
		var before *Row
		if len(old) > 0 && old[0].Name == lock.Name {
			before, old = old[0], old[1:]
		}
		r := update(before, lock, summaries, from, at)
		if r != before {
			if b.came = append(b.came, r); before != nil {
				b.went = append(b.went, before)
			}
		}
		b.rows[i] = r
		b.all.add(r)
		b.version += r.Fingerprint
		b.next = Earlier(b.next, r.next)
	}
	b.went = append(b.went, old...)
}

// update returns the row of the lock: the one before if nothing changed.
func update(before *Row, lock *compact.Record, summaries map[string]Queue, from *Source,
	at staleness.Moment) *Row {
	if before == nil || before.Record != lock {
		queue := ShareOf(lock.Name, lock.Attributes).QueueName(lock.Name)
		return NewRow(lock, from.Policy, at, summaries[queue], before).In(from.Cluster)
	}
	now := summaries[before.Share.QueueName(lock.Name)]
	same := now.Waiters == before.Waiters && now.Longest.Equal(before.Longest)
	if same && (before.next.IsZero() || at.Wall.Before(before.next)) {
		return before
	}
	r := *before
	r.Queue = now
	r.judge(from.Policy, at)
	return &r
}
