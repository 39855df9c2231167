package timeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Limits of a [Store]. An interval takes about 250 bytes, besides its texts, which it shares with the locks.
const (
	MaxIntervals = 20_000
	MaxAge       = 24 * time.Hour
)

// Store stores ended holds and waits, up to a limit. The zero Store is empty.
type Store struct {
	mu               sync.Mutex
	intervals        []Interval
	incompleteBefore time.Time // when what is no longer remembered had ended, at the latest

	queues   map[string][]metadata.Waiter // as of the last look
	acquired map[string]bool              // tickets that left their queues with the lock, since then
}

func (s *Store) AddHold(e *metadata.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(FromEnding(e))
}

// AddAcquired adds the wait of a waiter that got its lock.
func (s *Store) AddAcquired(w *metadata.Waiter, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquired == nil || len(s.acquired) > MaxIntervals {
		s.acquired = map[string]bool{}
	}
	s.acquired[w.ID] = true
	s.addWait(w, now, true)
}

// UpdateQueues adds the waits of those who left a queue without the lock since the last call. It keeps the queues,
// which nobody may change afterwards.
func (s *Store) UpdateQueues(queues map[string][]metadata.Waiter, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lock, before := range s.queues {
		after := queues[lock]
		if len(after) > 0 && len(after) == len(before) && &after[0] == &before[0] {
			continue // nobody came or went
		}
		stays := make(map[string]bool, len(after))
		for i := range after {
			stays[after[i].ID] = true
		}
		for i := range before {
			if w := &before[i]; !stays[w.ID] && !s.acquired[w.ID] {
				s.addWait(w, now, false)
			}
		}
	}
	s.queues = queues
	clear(s.acquired)
}

func (s *Store) addWait(w *metadata.Waiter, now time.Time, taken bool) {
	i := fromWaiter(w)
	i.End = now
	i.Acquired = taken
	s.add(i)
}

func (s *Store) add(i Interval) {
	if s.intervals = append(s.intervals, i); len(s.intervals) > MaxIntervals+MaxIntervals/10 {
		s.evict(i.End)
	}
}

// evict drops what is a day old and what is drawn smallest: what is short for its age.
func (s *Store) evict(now time.Time) {
	size := func(i *Interval) float64 {
		age := max(time.Second, now.Sub(i.End))
		if age > MaxAge {
			return 0
		}
		return float64(max(time.Millisecond, i.End.Sub(i.Begin))) / float64(age)
	}
	slices.SortFunc(s.intervals, func(a, b Interval) int { return cmp.Compare(size(&b), size(&a)) })
	for n := range s.intervals[MaxIntervals:] {
		if end := s.intervals[MaxIntervals+n].End; end.After(s.incompleteBefore) {
			s.incompleteBefore = end
		}
	}
	s.intervals = slices.Delete(s.intervals, MaxIntervals, len(s.intervals))
}

// Since returns the wanted intervals that had not ended by then. If wanted is nil, it returns all of them.
func (s *Store) Since(from time.Time, wanted func(*Interval) bool) (all []Interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.intervals {
		if k := &s.intervals[i]; k.End.After(from) && (wanted == nil || wanted(k)) {
			all = append(all, *k)
		}
	}
	return all
}

// IncompleteBefore returns the time before which short intervals may be missing; zero if none is.
func (s *Store) IncompleteBefore() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incompleteBefore
}
