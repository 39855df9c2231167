package locks

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/lockorder"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Class is why a person should hear of a lock.
type Class int

// The classes, those that matter most first.
const (
	Overdue  Class = iota // expired or dead, and not removed by the time that nothing but trouble explains
	Dead                  // its holder has ended, and unlockers only report that
	Late                  // past its alert
	Broken                // malformed
	Warned                // about to be auto-unlocked although it never alerted
	Leaving               // expired or dead, and removed by itself within moments
	Peaceful              // nothing is wrong
)

// Class is that of a lock.
func (r *Row) Class() Class {
	switch r.Display {
	case Expired, Abandoned:
		switch {
		case r.overdue:
			return Overdue
		case r.Display == Abandoned && r.Verdict().RemoveAt.IsZero():
			return Dead
		}
		return Leaving
	case Alerting:
		return Late
	case Malformed:
		return Broken
	case Expiring:
		return Warned
	}
	return Peaceful
}

// Impact is what a lock does to those who want it. One that several can hold counts as a whole.
type Impact struct {
	Lock    string
	Holders []*Row           // the one that matters most first
	Queue                    // of those who wait for it
	First   *metadata.Waiter // who has waited longest; nil = nobody waits
	lost    time.Duration    // by all who wait
}

// Row is the holder that matters most.
func (i *Impact) Row() *Row { return i.Holders[0] }

// Class is that of the lock.
func (i *Impact) Class() Class { return i.Row().Class() }

// impactOf is that of a lock which somebody holds.
func impactOf(lock string, holders []*Row, queue []metadata.Waiter, at time.Time) *Impact {
	slices.SortStableFunc(holders, func(a, b *Row) int { return cmp.Compare(a.Class(), b.Class()) })
	i := &Impact{Lock: lock, Holders: holders, Queue: QueueOf(queue), lost: Lost(queue, at)}
	for n := range queue {
		if w := &queue[n]; i.First == nil || lockorder.Instant(w.Since.Time) < lockorder.Instant(i.First.Since.Time) {
			i.First = w
		}
	}
	return i
}

// Lost is the time that those in a queue have lost so far.
func Lost(queue []metadata.Waiter, at time.Time) (lost time.Duration) {
	for i := range queue {
		if since := queue[i].Since.Time; !since.IsZero() {
			lost += max(0, at.Sub(since))
		}
	}
	return lost
}

// compare is negative if a person should hear of the lock before the other one: because of its class, because nobody
// looks at it yet, because more time is lost, or because it began earlier.
func (i *Impact) compare(o *Impact) int {
	a, b := i.Row(), o.Row()
	return cmp.Or(cmp.Compare(i.Class(), o.Class()), cmp.Compare(looked(a), looked(b)), cmp.Compare(o.loss(), i.loss()),
		cmp.Compare(i.began(), o.began()), cmp.Compare(i.Lock, o.Lock), cmp.Compare(a.Cluster, b.Cluster))
}

// looked is 1 for a lock that somebody looks at.
func looked(r *Row) int {
	if r.Looked == nil {
		return 0
	}
	return 1
}

// loss is the time that is lost because of what is wrong with the lock.
func (i *Impact) loss() time.Duration {
	if i.Class() == Peaceful {
		return 0
	}
	return i.lost
}

// began is since when there has been a reason to speak of the lock: its trouble or, if there is none, the longest wait.
func (i *Impact) began() int64 {
	switch r := i.Row(); i.Class() {
	case Peaceful:
		return lockorder.Instant(i.Longest)
	case Warned:
		return lockorder.Instant(r.UnlockAt())
	default:
		return lockorder.Instant(r.TroubledAt())
	}
}

// worst is the lock that a person should hear of first. Nil if nothing is wrong with any, and nobody waits.
func (s *Snapshot) worst() *Impact {
	var worst *Impact
	for lock, queue := range s.Queues {
		if holders := s.Holders(lock); len(queue) > 0 && len(holders) > 0 {
			worst = first(worst, impactOf(lock, holders, queue, s.at))
		}
	}
	for _, r := range s.troubled {
		if r.Waiters == 0 {
			worst = first(worst, impactOf(r.Name, []*Row{r}, nil, s.at))
		}
	}
	return worst
}

// worstOf is the worst lock of several clusters.
func worstOf(parts []Part) (worst *Impact) {
	for _, p := range parts {
		if i := p.Snapshot.Worst(); i != nil {
			worst = first(worst, i)
		}
	}
	return worst
}

// first is the one of two that a person should hear of first. The first may be nil.
func first(a, b *Impact) *Impact {
	if a == nil || b.compare(a) < 0 {
		return b
	}
	return a
}
