package locks

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// HeldLock is a held lock in the ranking: one with several holders counts once, in the class of the most urgent one.
type HeldLock struct {
	*Row          // that holder
	Lock   string // its name is the row's, unless several hold it
	Shares int    // how many hold it, if several can
}

// NewHeldLock returns a lock with its holders, of which there is at least one.
func NewHeldLock(lock string, holders []*Row) HeldLock {
	w := HeldLock{Row: holders[0], Lock: lock}
	for _, r := range holders[1:] {
		if h := (HeldLock{Row: r, Lock: lock}); h.Compare(&w) < 0 {
			w.Row = r
		}
	}
	if len(holders) > 1 {
		w.Shares = len(holders)
	}
	return w
}

// WaitSummary sums up the waiters of a lock.
type WaitSummary struct {
	Waiters   int
	Longest   time.Time     // since when the longest waiter waits; zero = not known
	TotalWait time.Duration // of all waiters
}

// SummarizeWaiters sums up the waiters of a lock.
func SummarizeWaiters(waiters []metadata.Waiter, now time.Time) WaitSummary {
	q := WaitSummary{Waiters: len(waiters)}
	for i := range waiters {
		since := waiters[i].Since.Time
		if since.IsZero() {
			continue
		}
		q.TotalWait += max(0, now.Sub(since))
		q.Longest = protocol.Earlier(q.Longest, since)
	}
	return q
}

// Ranking has the most urgent of many locks. It is made once for each snapshot.
type Ranking struct {
	First  *HeldLock // nil: nothing is wrong with any, and nobody waits
	Counts ClassCounts
}

// ClassCounts has the number of locks in each class.
type ClassCounts [ClassOnTime + 1]int

// Add takes a lock into account. Locks with which nothing is wrong and for which nobody waits may be left out.
func (r *Ranking) Add(l HeldLock) {
	r.Counts[l.Class]++
	if l.Class == ClassOnTime && l.Waiters == 0 {
		return
	}
	if r.First == nil || l.Compare(r.First) < 0 {
		r.First = new(l)
	}
}

// Compare is negative if the lock is more urgent than the other one: because of its class, because it is not
// acknowledged, because more time is lost, or because it began earlier. Of locks on time, the one that is waited for
// longest comes first.
func (w *HeldLock) Compare(o *HeldLock) int {
	a, b := w.rank(nil), o.rank(nil)
	return cmp.Or(slices.Compare(a[:], b[:]), strings.Compare(w.Lock, o.Lock))
}

// rank returns the order of [HeldLock.Compare] as numbers. A deadlock counts before what the record says.
func (r *Row) rank(cycles map[string][2]int) [5]int64 {
	if place, deadlocked := cycles[r.Record.QueueName()]; deadlocked && r.Leased == nil {
		return [5]int64{int64(ClassDeadlock), int64(place[0]), int64(place[1])}
	}
	if r.Class >= ClassOnTime {
		return [5]int64{int64(r.Class), protocol.SortableTime(r.Longest), protocol.SortableTime(r.deadline())}
	}
	var later int64
	if r.Acknowledged != nil {
		later = 1
	}
	if r.Class == ClassMalformed && r.Inconsistent != "" { // after records that cannot be read
		later += 2
	}
	return [5]int64{int64(r.Class), later, -int64(r.TotalWait), -int64(r.Waiters), protocol.SortableTime(r.began())}
}

// began returns since when the hold has been in its class, as far as that is known.
func (r *Row) began() time.Time {
	switch r.Class {
	case ClassOverdue, ClassLeaving, ClassDead:
		return protocol.Earlier(r.AbandonedAt, r.ExpiresAt)
	case ClassSilent, ClassLate:
		return r.LateSince()
	}
	return r.LockedAt
}

// LateSince returns when the first of the deadlines of a lock that alerts passed.
func (r *Row) LateSince() time.Time {
	return protocol.Earlier(r.DueAlert, r.ExpiresAt)
}

// noteOrder makes the order of locks, as far as it depends on the time that their waiters lose, a part of the version.
// The more wait for a lock, the faster that time grows, so that the order is renewed now and then.
func (s *Snapshot) noteOrder() {
	var waited []*Row
	for _, r := range s.Rows {
		if r.Waiters > 0 && r.Class != ClassOnTime {
			waited = append(waited, r)
		}
	}
	order := uint64(0)
	for _, r := range Sort(waited, Order{By: MostUrgent}) {
		order = Hash(order, xxhash.Sum64String(r.Name))
	}
	s.Totals.Version += order
	if len(waited) > 1 {
		s.orderUntil = s.at.Add(maxOrderAge)
	}
}
