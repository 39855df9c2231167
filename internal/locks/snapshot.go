// Package locks is the read model: all locks at one moment, judged, ranked, and what a query finds among them, sorted,
// counted and cut into pages. Page, JSON, command line and metrics read it. It knows nothing of HTTP or etcd.
package locks

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Snapshot is all locks as they stood at one moment. It is immutable but for what it sorts once for all readers.
type Snapshot struct {
	Rows         []*Row // by name
	Leased       []*Row // locks of other libraries
	Totals       Counts // of all rows
	Queues       map[string][]metadata.Waiter
	Delays       []metadata.LockDelay
	Unclaimed    []diagnosis.Unclaimed    // those that have been free for longest first
	Cycles       func() []deadlock.Cycle  // found when they are first asked for, like the next two
	Inconsistent []diagnosis.Inconsistent // by name
	Ranking      func() *Ranking          // the most urgent locks
	Next         time.Time                // when a state changes by itself; zero = never
	Combined     diagnosis.CombinedPolicy // by which the locks were judged

	at           time.Time          // the moment at which the states hold
	orderUntil   time.Time          // when the order may have changed by itself; zero = never
	epoch        time.Time          // the wall clock at 0 of the monotonic one, when all locks were last judged
	locks        []*metadata.Record // of which the snapshot was built
	urgent       []*Row             // those that need a person, or soon will
	queueVersion uint64
	regexpSlots  chan struct{} // of all snapshots: searches with regular expressions that go on
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

// isCurrent reports whether a snapshot built now would be the same.
func (s *Snapshot) isCurrent(in *Input, queueVersion uint64, at time.Time) bool {
	return sameSlice(in.Locks, s.locks) && sameSlice(in.Leased, s.Leased) &&
		queueVersion == s.queueVersion && slices.Equal(in.Delays, s.Delays) &&
		slices.Equal(in.Unclaimed, s.Unclaimed) && s.Combined.Equal(&in.Combined) &&
		(s.Next.IsZero() || at.Before(s.Next)) && (s.orderUntil.IsZero() || at.Before(s.orderUntil)) && !at.Before(s.at)
}

func sameSlice[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// maxOrderAge is after how long locks are sorted anew by the time that their waiters have lost.
const maxOrderAge = 10 * time.Second

// maxClockMove is how far the wall clock may move against the monotonic one before all locks are judged again.
const maxClockMove = time.Second

// rowsAt returns the rows of a snapshot, or of none, as far as they can be right at another moment. None can be at an
// earlier one, such as the last sign of life of an etcd that has fallen silent, after the wall clock was set, or if
// unlockers treat locks differently.
func (s *Snapshot) rowsAt(policy *diagnosis.CombinedPolicy, at staleness.Moment) (rows []*Row, epoch time.Time) {
	epoch = at.Wall.Add(-at.Mono)
	if s == nil || at.Wall.Before(s.at) || epoch.Sub(s.epoch).Abs() > maxClockMove || !s.Combined.Equal(policy) {
		return nil, epoch
	}
	return s.Rows, s.epoch
}

// Input is all that a snapshot is built from.
type Input struct {
	Locks     []*metadata.Record // by name
	Queues    map[string][]metadata.Waiter
	Delays    []metadata.LockDelay
	Unclaimed []diagnosis.Unclaimed
	Leased    []*Row
	Combined  diagnosis.CombinedPolicy // by which the locks are judged
}

// Build makes a snapshot as of a moment.
func Build(in Input, at staleness.Moment) *Snapshot {
	s := build(in, at, nil, diagnosis.FindInconsistent(in.Locks, in.Delays))
	s.regexpSlots = make(chan struct{}, maxRegexpSearches)
	s.Cycles = new(cycleSearch).cyclesOf(s)
	return s
}

// build makes a snapshot. It judges the locks whose rows, by name, are not known or no longer right.
func build(in Input, at staleness.Moment, known []*Row, inconsistent []diagnosis.Inconsistent) *Snapshot {
	s := &Snapshot{at: at.Wall, Combined: in.Combined, locks: in.Locks, Queues: in.Queues, Delays: in.Delays,
		Unclaimed: in.Unclaimed, Rows: make([]*Row, len(in.Locks)), Leased: in.Leased,
		Inconsistent: inconsistent}
	why := map[string]string{}
	for _, l := range inconsistent {
		if l.Kind != diagnosis.EndlessDelay {
			why[l.Name] = l.Why
		}
	}
	waiting := make(map[string]*WaitSummary, len(in.Queues))
	for lock, queue := range in.Queues {
		waiting[lock] = new(SummarizeWaiters(queue, at.Wall))
	}
	nobody := &WaitSummary{}
	for i, r := range in.Locks {
		for len(known) > 0 && known[0].Name < r.Name {
			known = known[1:]
		}
		lock := r.QueueName()
		queue := cmp.Or(waiting[lock], nobody)
		if len(known) > 0 && known[0].isValidAt(r, queue, why[lock], at.Wall) {
			s.Rows[i] = known[0]
		} else {
			s.Rows[i] = NewRow(r, &in.Combined, at, queue, why[lock])
		}
	}
	for _, r := range s.Rows {
		s.Next = protocol.Earlier(s.Next, r.validUntil)
		if r.Display != metadata.StateHeld || r.Class != ClassOnTime {
			s.urgent = append(s.urgent, r)
		}
	}
	s.Totals = countsOf(s.allRows())
	s.Totals.Waiting = countsOf(s.Leased).Waiting // and for our locks, also those that nobody holds
	for _, queue := range waiting {
		s.Totals.Waiting += queue.Waiters
		s.Totals.Longest = protocol.Earlier(s.Totals.Longest, queue.Longest)
	}
	s.noteOrder()
	s.Ranking = sync.OnceValue(s.ranking)
	return s
}

// DelaysOf returns the lock delays of a lock and of its shares.
func (s *Snapshot) DelaysOf(lock string) (delays []metadata.LockDelay) {
	for _, d := range s.Delays {
		base, _, ok := metadata.ParseShare(d.Name)
		if d.Name == lock || ok && base == lock {
			delays = append(delays, d)
		}
	}
	return delays
}

// rowNamed returns the index of the row of a lock, or where it would be, among rows that are sorted by name.
func rowNamed(rows []*Row, name string) (i int, found bool) {
	return slices.BinarySearchFunc(rows, name, func(r *Row, name string) int { return strings.Compare(r.Name, name) })
}

func countsOf(rows []*Row) (all Counts) {
	for _, r := range rows {
		all.add(r)
	}
	return all
}

// ranking ranks the locks that may need attention: those with waiters, and those with a hold in another state than
// held. A multi-holder lock counts once.
func (s *Snapshot) ranking() *Ranking {
	names := map[string]bool{}
	for lock, queue := range s.Queues {
		names[lock] = len(queue) > 0
	}
	for _, r := range s.urgent {
		names[r.Record.QueueName()] = true
	}
	ranking := &Ranking{}
	for lock, matters := range names {
		if holders := s.Holders(lock); matters && len(holders) > 0 {
			ranking.Add(NewHeldLock(lock, holders))
		}
	}
	return ranking
}

// Shares returns the rows of the holders of a multi-holder lock.
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

// Holders returns the rows of all holders of the lock.
func (s *Snapshot) Holders(lock string) []*Row {
	if r := s.Find(lock); r != nil {
		return append([]*Row{r}, s.Shares(lock)...)
	}
	return s.Shares(lock)
}

// HolderSummary is the occupancy of a multi-holder lock, and the worst state of its holders.
type HolderSummary struct {
	protocol.Occupancy
	Display metadata.State
	Oldest  time.Time
}

// SummarizeHolders sums up the holders of a lock.
func SummarizeHolders(holders []*Row) HolderSummary {
	u := HolderSummary{Display: metadata.StateHeld}
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
