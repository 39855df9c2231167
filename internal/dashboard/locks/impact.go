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
	for r := range s.Troubled() {
		if r.Waiters == 0 && (troubled == nil || troubled.Waiters == 0) {
			troubled = s.first(troubled, &Impact{r.Name, []*Row{r}, Queue{}})
		}
	}
	return s.either(troubled, sound)
}

// either is the troubled lock, unless far more is lost at the sound one. Both may be nil.
func (s *Snapshot) either(troubled, sound *Impact) *Impact {
	if troubled == nil || sound != nil && s.lost(sound) > s.lost(troubled) {
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
	if a == nil {
		return b
	}
	if cmp.Or(cmp.Compare(min(1, b.Waiters), min(1, a.Waiters)), cmp.Compare(s.lost(b), s.lost(a)),
		cmp.Compare(a.Row().Display.urgency(), b.Row().Display.urgency()), cmp.Compare(a.Lock, b.Lock)) < 0 {
		return a
	}
	return b
}

// lost is roughly how many seconds of processes a lock has cost so far. One that nobody waits for counts since it is
// overdue, as if one did.
func (s *Snapshot) lost(i *Impact) int64 {
	since := i.Longest
	if r := i.Row(); i.Waiters == 0 {
		switch r.Display {
		case Expiring:
		case Abandoned:
			since = protocol.EndedAt(r.Death)
		default:
			since = Earlier(r.Verdict.AlertAt, r.Verdict.AutoUnlockAt)
		}
	}
	return Lost(max(1, i.Waiters), since, s.at)
}

// Lost is how many seconds as many processes lose that all wait since an instant. That is the most that those in a
// queue can have lost, of whom only the longest wait is looked at.
func Lost(waiters int, longest, now time.Time) int64 {
	if longest.IsZero() || longest.After(now) {
		return 0
	}
	return int64(waiters) * int64(now.Sub(longest)/time.Second)
}
