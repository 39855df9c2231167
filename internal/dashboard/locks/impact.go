package locks

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// Impact is what a lock does to those who want it. One that several can hold counts as a whole.
type Impact struct {
	Lock    string
	Holders []*Row // the most urgent first
	Queue          // of those who wait for it
}

// Row is the holder that needs a person most.
func (i *Impact) Row() *Row { return i.Holders[0] }

// Troubled reports whether a state needs a person, or soon will.
func (d DisplayState) Troubled() bool {
	return d == Expired || d == Abandoned || d == Alerting || d == Expiring
}

// worst is the lock that a person should hear of first: the troubled one that most wait for or, if far more is lost at
// a sound one, that. Nil if no lock is troubled and nobody waits.
func (s *Snapshot) worst() *Impact {
	var troubled, sound *Impact
	for lock, queue := range s.Queues {
		if holders := s.Holders(lock); len(queue) > 0 && len(holders) > 0 {
			slices.SortStableFunc(holders, func(a, b *Row) int {
				return cmp.Compare(a.Display.urgency(), b.Display.urgency())
			})
			i := &Impact{lock, holders, QueueOf(queue)}
			if i.Row().Display.Troubled() {
				troubled = s.first(troubled, i)
			} else {
				sound = s.first(sound, i)
			}
		}
	}
	if troubled == nil || troubled.Waiters == 0 {
		if r := s.worstAlone(); r != nil {
			troubled = s.first(troubled, &Impact{r.Name, []*Row{r}, Queue{}})
		}
	}
	return s.either(troubled, sound)
}

// worstAlone is the troubled lock that matters most among those that nobody waits for; nil: there is none.
func (s *Snapshot) worstAlone() *Row {
	var worst *Row
	var most rank
	for r := range s.Troubled() {
		if r.Waiters > 0 {
			continue
		}
		if k := s.rank(r.Name, r, Queue{}); worst == nil || k.compare(most) < 0 {
			worst, most = r, k
		}
	}
	return worst
}

// either is the troubled lock, unless far more is lost at the sound one. Both may be nil.
func (s *Snapshot) either(troubled, sound *Impact) *Impact {
	if troubled == nil || sound != nil && s.lost(sound.Row(), sound.Queue) > s.lost(troubled.Row(), troubled.Queue) {
		return sound
	}
	return troubled
}

// worstOf is the worst lock of several clusters.
func (s *Snapshot) worstOf(parts []Part) *Impact {
	var troubled, sound *Impact
	for _, p := range parts {
		switch i := p.Snapshot.Worst(); {
		case i == nil:
		case i.Row().Display.Troubled():
			troubled = s.first(troubled, i)
		default:
			sound = s.first(sound, i)
		}
	}
	return s.either(troubled, sound)
}

// first is the one of two that matters more. The first may be nil.
func (s *Snapshot) first(a, b *Impact) *Impact {
	if a == nil || s.rank(b.Lock, b.Row(), b.Queue).compare(s.rank(a.Lock, a.Row(), a.Queue)) <= 0 {
		return b
	}
	return a
}

// rank is how much a lock matters.
type rank struct {
	waited  int // 1: somebody waits for it
	lost    int64
	urgency int64
	lock    string
}

// compare is negative if the lock matters more than the other one.
func (k rank) compare(o rank) int {
	switch { // not cmp.Or, which would read all names
	case k.waited != o.waited:
		return cmp.Compare(o.waited, k.waited)
	case k.lost != o.lost:
		return cmp.Compare(o.lost, k.lost)
	}
	return cmp.Or(cmp.Compare(k.urgency, o.urgency), cmp.Compare(k.lock, o.lock))
}

// rank is that of a lock with its most urgent row and its queue.
func (s *Snapshot) rank(lock string, r *Row, q Queue) rank {
	return rank{min(1, q.Waiters), s.lost(r, q), r.Display.urgency(), lock}
}

// lost is roughly how many seconds of processes a lock has cost so far. One that nobody waits for counts since it is
// overdue, as if one did.
func (s *Snapshot) lost(r *Row, q Queue) int64 {
	since := q.Longest
	if q.Waiters == 0 {
		switch r.Display {
		case Expiring:
		case Abandoned:
			since = protocol.EndedAt(r.Death)
		default:
			since = Earlier(r.alertAt(), r.autoUnlockAt())
		}
	}
	return Lost(max(1, q.Waiters), since, s.at)
}

// Lost is how many seconds as many processes lose that all wait since an instant. That is the most that those in a
// queue can have lost, of whom only the longest wait is looked at.
func Lost(waiters int, longest, now time.Time) int64 {
	if longest.IsZero() || longest.After(now) {
		return 0
	}
	return int64(waiters) * int64(now.Sub(longest)/time.Second)
}
