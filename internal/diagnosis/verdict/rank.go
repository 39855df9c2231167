package verdict

import (
	"cmp"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Lock is what is known about a held lock. One with several holders counts as a whole, in the class of the holder that
// matters most.
type Lock struct {
	Name   string
	Class  Class
	Holder *metadata.Record // that one
	Judged staleness.Verdict
	Shares int // how many hold it, if several can
	Queue
	Looked *metadata.Acknowledgement // who looks at it now; nil = nobody
}

// Whole is a lock that these hold together, at least one of them; each is described as if it were alone.
func Whole(name string, holders []Lock, waiting Queue) Lock {
	l := holders[0]
	for _, h := range holders[1:] {
		if h.Compare(&l) < 0 {
			l = h
		}
	}
	l.Name, l.Queue = name, waiting
	if len(holders) > 1 {
		l.Shares = len(holders)
	}
	return l
}

// Queue is who waits for a lock.
type Queue struct {
	Waiters int
	Longest time.Time     // since when the longest waiter waits; zero = not known
	Lost    time.Duration // by all who wait, in sum
	Timed   int           // those of them whose wait has a known beginning
}

// QueueOf sums up the waiters of a lock.
func QueueOf(waiters []metadata.Waiter, now time.Time) Queue {
	q := Queue{Waiters: len(waiters)}
	for i := range waiters {
		since := waiters[i].Since.Time
		if since.IsZero() {
			continue
		}
		q.Timed++
		q.Lost += max(0, now.Sub(since))
		q.Longest = protocol.Earlier(q.Longest, since)
	}
	return q
}

// Ranking says which of many locks is the most urgent. It is made once for each snapshot.
type Ranking struct {
	First  *Lock // nil: nothing is wrong with any, and nobody waits
	Counts Counts
}

// Counts is how many are in each class.
type Counts [Calm + 1]int

// Add takes a lock into account. Locks with which nothing is wrong and for which nobody waits may be left out.
func (r *Ranking) Add(l Lock) {
	r.Counts[l.Class]++
	if l.Class == Calm && l.Waiters == 0 {
		return
	}
	if r.First == nil || l.Compare(r.First) < 0 {
		r.First = new(l)
	}
}

// Compare is negative if the lock is more urgent than the other one: because of its class, because it is not
// acknowledged, because more time is lost, or because it began earlier.
func (l *Lock) Compare(o *Lock) int {
	if l.Class == Calm && o.Class == Calm {
		return cmp.Or(cmp.Compare(protocol.Instant(l.Longest), protocol.Instant(o.Longest)),
			strings.Compare(l.Name, o.Name))
	}
	return cmp.Or(cmp.Compare(l.Class, o.Class), cmp.Compare(looked(l), looked(o)), cmp.Compare(o.Lost, l.Lost),
		cmp.Compare(o.Waiters, l.Waiters), cmp.Compare(protocol.Instant(l.Began()), protocol.Instant(o.Began())),
		strings.Compare(l.Name, o.Name))
}

func looked(l *Lock) int {
	if l.Looked == nil {
		return 0
	}
	return 1
}

// Began is since when the lock has been in its class, as far as that is known.
func (l *Lock) Began() time.Time {
	switch l.Class {
	case Overdue, Leaving, Dead:
		return protocol.Earlier(l.Judged.AbandonedAt, l.Judged.AutoUnlockAt)
	case Silent, Late:
		return l.lateSince()
	}
	return l.Holder.LockedAt
}

// lateSince is when the first of the deadlines of a lock that alerts passed.
func (l *Lock) lateSince() time.Time {
	return protocol.Earlier(l.Judged.AlertAt, l.Judged.AutoUnlockAt)
}
