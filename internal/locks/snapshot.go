// Package locks is the read model: all locks at one moment, judged, ranked, and what a query finds among them, sorted,
// counted and cut into pages. Page, JSON, command line and metrics read it. It knows nothing of HTTP or etcd.
package locks

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Snapshot is all locks as they stood at one moment. It is immutable but for what it sorts once for all readers.
type Snapshot struct {
	Rows    []*Row // by name
	All     Counts // of the rows
	Queues  map[string][]metadata.Waiter
	Cycles  func() []deadlock.Cycle // found when they are first asked for
	Ranking func() *verdict.Ranking // which lock a person should hear of first; found when it is first asked for
	Next    time.Time               // when a state changes by itself; zero = never

	at           time.Time                // the moment at which the states hold
	epoch        time.Time                // the wall clock at 0 of the monotonic one, when all locks were last judged
	combined     diagnosis.CombinedPolicy // by which they were judged
	locks        []*metadata.Record       // of which the snapshot was built
	troubled     []*Row                   // those that need a person, or soon will
	queueVersion uint64
	costly       chan struct{} // of all snapshots: searches with regular expressions that go on
	sorted       sortings
}

// Find returns the lock with this name, or nil.
func (s *Snapshot) Find(name string) *Row {
	i, found := rowNamed(s.Rows, name)
	if !found {
		return nil
	}
	return s.Rows[i]
}

// Source is where the locks come from.
type Source struct {
	// Locks returns the locks held now, sorted by name. The slice is the same one until something changes.
	Locks  func() []*metadata.Record
	Queues func() map[string][]metadata.Waiter // nil: waiters are not recorded
	// Combined returns how the unlockers treat stale locks now.
	Combined func() diagnosis.CombinedPolicy
}

// Snapshots keeps the newest snapshot. Building one costs time, so it is built only on request and after a change, by
// one request at a time, and never so often that building takes more than a share of the time.
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
	f := s.source.Combined()
	if s.last != nil && s.last.combined.Equal(&f) && s.last.current(locks, version, at.Wall) {
		return s.last
	}
	start := time.Now()
	known, epoch := s.last.rowsAt(&f, at)
	s.last = build(locks, queues, f, at, known)
	s.last.epoch = epoch
	s.last.queueVersion = version
	s.last.costly = s.costly
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
func (s *Snapshot) current(locks []*metadata.Record, queueVersion uint64, at time.Time) bool {
	same := len(locks) == len(s.locks) && (len(locks) == 0 || &locks[0] == &s.locks[0])
	return same && queueVersion == s.queueVersion && (s.Next.IsZero() || at.Before(s.Next)) && !at.Before(s.at)
}

// clockMoves is how far the wall clock may move against the monotonic one before all locks are judged again.
const clockMoves = time.Second

// rowsAt returns the rows of a snapshot, or of none, as far as they can be right at another moment. None can be at an
// earlier one, such as the last sign of life of an etcd that has fallen silent, after the wall clock was set, or if
// unlockers treat locks differently.
func (s *Snapshot) rowsAt(f *diagnosis.CombinedPolicy, at staleness.Moment) (rows []*Row, epoch time.Time) {
	epoch = at.Wall.Add(-at.Mono)
	if s == nil || at.Wall.Before(s.at) || epoch.Sub(s.epoch).Abs() > clockMoves || !s.combined.Equal(f) {
		return nil, epoch
	}
	return s.Rows, s.epoch
}

// Build makes the snapshot of records that come sorted by name, as unlockers treat them, at a moment.
func Build(records []*metadata.Record, queues map[string][]metadata.Waiter, f diagnosis.CombinedPolicy,
	at staleness.Moment) *Snapshot {
	s := build(records, queues, f, at, nil)
	s.costly = make(chan struct{}, maxCostly)
	return s
}

// build makes a snapshot. It judges the locks whose rows, by name, are not known or no longer right.
func build(locks []*metadata.Record, queues map[string][]metadata.Waiter, f diagnosis.CombinedPolicy,
	at staleness.Moment,
	known []*Row) *Snapshot {
	s := &Snapshot{at: at.Wall, combined: f, locks: locks, Queues: queues, Rows: make([]*Row, len(locks)),
		Cycles: sync.OnceValue(func() []deadlock.Cycle { return deadlock.Find(locks, queues) })}
	waiting := make(map[string]*Queue, len(queues))
	for lock, queue := range queues {
		waiting[lock] = new(verdict.QueueOf(queue, at.Wall))
	}
	nobody := &Queue{}
	for i, r := range locks {
		for len(known) > 0 && known[0].Name < r.Name {
			known = known[1:]
		}
		queue := cmp.Or(waiting[r.QueueName()], nobody)
		if len(known) > 0 && known[0].holds(r, queue, at.Wall) {
			s.Rows[i] = known[0]
		} else {
			s.Rows[i] = NewRow(r, &f, at, queue)
		}
	}
	for _, r := range s.Rows {
		s.Next = protocol.Earlier(s.Next, r.next)
		if r.Display != Held {
			s.troubled = append(s.troubled, r)
		}
	}
	s.All = countsOf(s.Rows)
	s.Ranking = sync.OnceValue(s.ranking)
	return s
}

// rowNamed is where the row of a lock stands, or would stand, among rows that are sorted by name.
func rowNamed(rows []*Row, name string) (i int, found bool) {
	return slices.BinarySearchFunc(rows, name, func(r *Row, name string) int { return strings.Compare(r.Name, name) })
}

func countsOf(rows []*Row) (all Counts) {
	for _, r := range rows {
		all.add(r)
	}
	return all
}

// Lock is the row for the table that decides which lock needs a person first, without those who wait for it.
func (r *Row) Lock() verdict.Lock {
	return verdict.Lock{Name: r.Name, Class: r.Class, Holder: r.Record, Judged: r.Verdict(), Looked: r.Looked}
}

// Whole is a lock as all hold it together.
func Whole(lock string, holders []*Row, waiting verdict.Queue) verdict.Lock {
	all := make([]verdict.Lock, len(holders))
	for i, r := range holders {
		all[i] = r.Lock()
	}
	return verdict.Whole(lock, all, waiting)
}

// ranking ranks the locks that a person may have to know about: those with waiters, and those of which a hold is in
// another state than held. A lock that several hold counts once.
func (s *Snapshot) ranking() *verdict.Ranking {
	names := map[string]bool{}
	for lock, queue := range s.Queues {
		names[lock] = len(queue) > 0
	}
	for _, r := range s.troubled {
		names[r.Record.QueueName()] = true
	}
	ranking := &verdict.Ranking{}
	for lock, matters := range names {
		if holders := s.Holders(lock); matters && len(holders) > 0 {
			ranking.Add(Whole(lock, holders, *holders[0].Queue))
		}
	}
	return ranking
}

// Share is how the hold is part of a lock that several can hold; the zero one for an ordinary one.
func (r *Row) Share() metadata.Share { return metadata.ShareFromAttributes(r.Name, r.Attributes) }

// Shares are the rows of those who share the lock now.
func (s *Snapshot) Shares(lock string) []*Row {
	if len(lock) > metadata.MaxNameBytes {
		return nil
	}
	var found []*Row
	from, _ := rowNamed(s.Rows, lock+"#1")
	to, _ := rowNamed(s.Rows, lock+"#:") // ":" follows "9"
	for _, r := range s.Rows[from:to] {
		if r.Share().LockName == lock {
			found = append(found, r)
		}
	}
	return found
}

// Holders are the rows of those who hold the lock, alone or together.
func (s *Snapshot) Holders(lock string) []*Row {
	if r := s.Find(lock); r != nil {
		return append([]*Row{r}, s.Shares(lock)...)
	}
	return s.Shares(lock)
}

// Use is how far a lock that several can hold is taken, and what is the matter with its holders.
type Use struct {
	protocol.Occupancy
	Display DisplayState
	Oldest  time.Time
}

func UseOf(holders []*Row) Use {
	u := Use{Display: Held}
	records := make([]*metadata.Record, len(holders))
	for i, r := range holders {
		records[i] = r.Record
		if r.Display.Urgency() < u.Display.Urgency() {
			u.Display = r.Display
		}
		u.Oldest = protocol.Earlier(u.Oldest, r.LockedAt)
	}
	u.Occupancy = protocol.OccupancyOf(records)
	return u
}

// Freshness judges how current the snapshot of the locks is.
type Freshness struct{ protocol.Freshness }

// staleAfter is after how many missed signs of life the snapshot is not current.
const staleAfter = 2

// Level is how far the snapshot can be trusted; the words are shown and are classes in the style sheet.
type Level string

const (
	Live  Level = "live"
	Stale Level = "stale"
	Never Level = "never" // nothing was ever loaded
)

// Level judges how current the snapshot is. A watch that is just being opened again is not stale by itself: only
// silence is.
func (f Freshness) Level(now time.Time) Level {
	switch {
	case f.HeardAt.IsZero():
		return Never
	case f.missed(now) >= staleAfter:
		return Stale
	}
	return Live
}

// StaleAt is when the snapshot is not current any more unless etcd is heard.
func (f Freshness) StaleAt() time.Time {
	return f.HeardAt.Add(staleAfter*f.ProgressInterval + f.ProgressInterval/2)
}

// missed is how many signs of life have not come. One that is late by less than half a pulse may still be under way.
func (f Freshness) missed(now time.Time) int {
	if f.ProgressInterval <= 0 {
		return 0
	}
	return int((now.Sub(f.HeardAt)+f.ProgressInterval/2)/f.ProgressInterval) - 1
}

// JudgedAt is the moment as of which locks are judged: now or, if etcd is silent, its last sign of life. What became of
// a lock since then is unknown, and silence must not make it look worse.
func (f Freshness) JudgedAt(now time.Time) time.Time {
	if f.missed(now) > 0 {
		return f.HeardAt
	}
	return now
}

// Reason is why nothing was ever loaded: help with a wrong setup.
func (f Freshness) Reason() string { return cmp.Or(f.Cause, "no answer") }

// Why is what follows "etcd has not answered since …": the kind of trouble, where it is known.
func (f Freshness) Why() string {
	if f.Class == "" {
		return ""
	}
	return ": " + f.Class
}
