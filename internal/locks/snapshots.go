package locks

import (
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Source is what snapshots are built from: functions of a view of the locks. A nil function returns nothing.
type Source struct {
	// Locks returns the locks held now, sorted by name. The slice is the same one until something changes.
	Locks     func() []*metadata.Record
	Queues    func() map[string][]metadata.Waiter
	Delays    func() []metadata.LockDelay
	Unclaimed func() []diagnosis.Unclaimed
	Leased    func() []*Row // those of other libraries; the same slice until one changes
	// Combined returns how the unlockers treat stale locks now.
	Combined func() diagnosis.CombinedPolicy
	// Clock is the monotonic clock of the records' Seen times.
	Clock func() time.Duration
}

func (s *Source) read() Input {
	return Input{Locks: call(s.Locks), Queues: call(s.Queues), Delays: call(s.Delays), Unclaimed: call(s.Unclaimed),
		Combined: call(s.Combined), Leased: call(s.Leased)}
}

func call[T any](f func() T) (result T) {
	if f != nil {
		result = f()
	}
	return result
}

// Snapshots keeps the newest snapshot. Building one costs time, so it is built only on request and after a change, by
// one request at a time, and never so often that building takes more than a share of the time.
type Snapshots struct {
	source      Source
	cycles      cycleSearch
	regexpSlots chan struct{}
	mu          sync.Mutex
	last        *Snapshot
	frozen      bool      // the last one is of the past
	nextBuild   time.Time // no new snapshot before this
}

// NewSnapshots returns the snapshots of a source.
func NewSnapshots(s Source) *Snapshots {
	return &Snapshots{source: s, regexpSlots: make(chan struct{}, maxRegexpSearches)}
}

const (
	buildShare     = 20          // building takes at most one 20th of the time
	maxSnapshotAge = time.Second // but a snapshot is never older than this
)

// Current returns the locks as they stand now or, while etcd is silent, as of its last sign of life: what became of
// them since is not known.
func (s *Snapshots) Current(now time.Time, fresh Freshness) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.moment(now, fresh.judgedAt(now))
	frozen := !at.Wall.Equal(now)
	if s.last != nil && now.Before(s.nextBuild) && !now.Before(s.last.at) && frozen == s.frozen {
		return s.last
	}
	in := s.source.read()
	version := versionOf(in.Queues)
	if s.last != nil && s.last.isCurrent(&in, version, at.Wall) {
		return s.last
	}
	start := time.Now()
	known, epoch := s.last.rowsAt(&in.Combined, at)
	s.last = build(in, at, known, diagnosis.FindInconsistent(in.Locks, in.Delays))
	s.last.epoch = epoch
	s.last.queueVersion = version
	s.last.regexpSlots = s.regexpSlots
	s.last.Cycles = s.cycles.cyclesOf(s.last)
	s.frozen = frozen
	s.nextBuild = now.Add(min(maxSnapshotAge, buildShare*time.Since(start)))
	return s.last
}

// moment returns an instant on both clocks.
func (s *Snapshots) moment(now, at time.Time) staleness.Moment {
	return staleness.Moment{Wall: at, Mono: call(s.source.Clock) - now.Sub(at)}
}

// Reread judges a record that has just been read from etcd. before is the lock as the snapshot has it, or nil.
func (s *Snapshots) Reread(r *metadata.Record, waiters []metadata.Waiter, before *Row, now time.Time) *Row {
	at := s.moment(now, now)
	inconsistent := ""
	if r.Seen = (metadata.Seen{First: at.Mono, Changed: at.Mono}); before != nil && before.Token == r.Token {
		inconsistent = before.Inconsistent
		r.Seen = before.Seen
		lockrecord.AttachStatements(r, before.Death, before.Suspicion)
		if !r.DeadlinesWrittenAt().Equal(before.DeadlinesWrittenAt()) {
			r.Seen.Changed = at.Mono
			r.Seen.Arrived = 0
		}
	}
	combined := call(s.source.Combined)
	return NewRow(r, &combined, at, new(SummarizeWaiters(waiters, now)), inconsistent)
}

// versionOf returns the fingerprint of the waiters.
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

// cycleSearch finds the deadlocks of one snapshot after another: once for each snapshot, however many readers ask, and
// less often if a search takes long because of many waiters.
type cycleSearch struct {
	mu       sync.Mutex
	searched *Snapshot // the last one
	next     time.Time // the earliest time of the next search
	found    []deadlock.Cycle
}

// A search that takes longer than costlySearch is repeated only after a pause, so that searching takes at most one 20th
// of the time. Meanwhile, the cycles are those of an older snapshot.
const (
	costlySearch = 100 * time.Millisecond
	searchShare  = 20
	maxPause     = 30 * time.Second
)

// cyclesOf returns the function that finds the cycles of a snapshot. They are shared: never write to them.
func (c *cycleSearch) cyclesOf(s *Snapshot) func() []deadlock.Cycle {
	return func() []deadlock.Cycle {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.searched == s || time.Now().Before(c.next) {
			return c.found
		}
		begin := time.Now()
		c.found = deadlock.Find(s.locks, s.Queues)
		c.searched = s
		if took := time.Since(begin); took > costlySearch {
			c.next = time.Now().Add(min(maxPause, searchShare*took))
		}
		return c.found
	}
}
