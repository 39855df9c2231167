package locks

import (
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
)

// cycleSearch finds the deadlocks of one snapshot after another: once for each snapshot, however many readers ask, and
// less often if a search takes long because of many waiters.
type cycleSearch struct {
	mu       sync.Mutex
	searched *Snapshot // the last one
	next     time.Time // the earliest time of the next search
	found    []deadlock.Cycle
}

// A search that takes longer than costlySearch is repeated only after a pause, so that searching takes at most one 20th
// of the time. Meanwhile, the cycles are those of an older snapshot.
const (
	costlySearch = 100 * time.Millisecond
	searchShare  = 20
	maxPause     = 30 * time.Second
)

// cyclesOf returns the function that finds the cycles of a snapshot. They are shared: never write to them.
func (c *cycleSearch) cyclesOf(s *Snapshot) func() []deadlock.Cycle {
	return func() []deadlock.Cycle {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.searched == s || time.Now().Before(c.next) {
			return c.found
		}
		begin := time.Now()
		c.found = deadlock.Find(s.locks, s.Queues)
		c.searched = s
		if took := time.Since(begin); took > costlySearch {
			c.next = time.Now().Add(min(maxPause, searchShare*took))
		}
		return c.found
	}
}
