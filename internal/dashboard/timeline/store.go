package timeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The most that is remembered. An interval takes about 250 bytes and the texts in it, which are those of the locks.
const (
	Most = 20_000
	Day  = 24 * time.Hour
)

// Store remembers holds and waits that are over. The zero Store has seen nothing.
type Store struct {
	mu     sync.Mutex
	kept   []Interval // by the time at which they were seen to end
	forgot time.Time  // when what is no longer remembered had ended, at the latest

	queues map[string][]metadata.Waiter // as of the last look
	took   map[string]bool              // tickets that left their queues with the lock, since then
}

// Saw notes a hold that is over.
func (s *Store) Saw(e *metadata.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(OfEnding(e))
}

// Took notes that a waiter got its lock.
func (s *Store) Took(w *metadata.Waiter, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.took == nil || len(s.took) > Most {
		s.took = map[string]bool{}
	}
	s.took[w.ID] = true
	s.left(w, now, true)
}

// Look notes who has given up since the last look. The queues are never written to.
func (s *Store) Look(queues map[string][]metadata.Waiter, now time.Time) {
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
			if w := &before[i]; !stays[w.ID] && !s.took[w.ID] {
				s.left(w, now, false)
			}
		}
	}
	s.queues = queues
	clear(s.took)
}

func (s *Store) left(w *metadata.Waiter, now time.Time, taken bool) {
	i := ofWaiter(w)
	i.End = now
	i.Taken = taken
	s.keep(i)
}

func (s *Store) keep(i Interval) {
	if s.kept = append(s.kept, i); len(s.kept) > Most+Most/10 {
		s.forget(i.End)
	}
}

// forget forgets what is a day old and, of the rest, what would be drawn smallest in any picture that goes far enough
// back to show it: the oldest and shortest.
func (s *Store) forget(now time.Time) {
	s.drop(func(i *Interval) bool { return now.Sub(i.End) > Day })
	if len(s.kept) <= Most {
		return
	}
	size := func(i *Interval) float64 {
		age := max(time.Second, now.Sub(i.End))
		return float64(max(time.Millisecond, i.End.Sub(i.Begin))) / float64(age)
	}
	sizes := make([]float64, len(s.kept))
	for n := range s.kept {
		sizes[n] = size(&s.kept[n])
	}
	slices.SortFunc(sizes, func(a, b float64) int { return cmp.Compare(b, a) })
	room := Most
	s.drop(func(i *Interval) bool {
		if size(i) < sizes[Most-1] || room == 0 {
			return true
		}
		room--
		return false
	})
}

// drop forgets some, and notes until when they lasted.
func (s *Store) drop(these func(*Interval) bool) {
	s.kept = slices.DeleteFunc(s.kept, func(i Interval) bool {
		if !these(&i) {
			return false
		}
		if i.End.After(s.forgot) {
			s.forgot = i.End
		}
		return true
	})
}

// Since returns the wanted intervals that had not ended by then. If wanted is nil, it returns all of them.
func (s *Store) Since(from time.Time, wanted func(*Interval) bool) (all []Interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.kept {
		if k := &s.kept[i]; k.End.After(from) && (wanted == nil || wanted(k)) {
			all = append(all, *k)
		}
	}
	return all
}

// Forgot is until when short intervals may be missing; zero: none is.
func (s *Store) Forgot() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgot
}
