package sweeper

import (
	"container/heap"

	"github.com/clustermutex/unlocker/pkg/staleness"
)

// maxDeaths bounds the locks that are looked at by name; a scan finds any number.
const maxDeaths = 10_000

// Died says that the holder of the lock is now proven to have ended, so that the lock is looked at without waiting for
// the next scan. It does not block.
func (s *Sweeper) Died(lock string) {
	s.mu.Lock()
	if len(s.deaths) <= maxDeaths {
		s.deaths = append(s.deaths, lock)
	}
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// lookAtDeaths queues the locks whose holders were proven dead.
func (s *Sweeper) lookAtDeaths() {
	s.mu.Lock()
	deaths := s.deaths
	s.deaths = nil
	s.mu.Unlock()
	if len(deaths) > maxDeaths {
		s.nextScan = 0
		return
	}
	c, now := s.look()
	if c.AlertOnly || !c.Forward || !s.cfg.Policy.UnlockAbandoned {
		return
	}
	for _, name := range deaths {
		r := s.cfg.Lock(name)
		if r == nil || !r.Proven() {
			continue
		}
		d := staleness.Decide(r, s.cfg.Policy, c, now)
		heap.Push(&s.soon, candidate{
			at: max(d.At, s.notBefore(r)), deadline: s.dueAt(staleness.Judge(r, s.cfg.Policy, now)), lock: name,
		})
	}
}
