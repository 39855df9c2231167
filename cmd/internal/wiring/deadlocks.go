package wiring

import (
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/lockview"
)

// deadlocks searches for deadlocks: once per state of the view, however many callers there are, and more rarely if
// there are so many waiters that a search takes long.
type deadlocks struct {
	view    *lockview.View
	mu      sync.Mutex
	changed <-chan struct{} // closed when the view has changed since the last search
	rest    time.Time       // no other search before this
	found   []deadlock.Cycle
}

const (
	searchShare = 20 // searching may take 1/20 of the time
	maxRest     = 30 * time.Second
)

// Deadlocks returns a function that returns the current cycles. They are shared: never write to them.
func Deadlocks(v *lockview.View) func() []deadlock.Cycle {
	return (&deadlocks{view: v}).now
}

func (d *deadlocks) now() []deadlock.Cycle {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current() {
		return d.found
	}
	d.changed = d.view.Changed() // before the search, so that no change is missed
	begin := time.Now()
	d.found = deadlock.Find(d.view.Locks(), d.view.Queues())
	d.rest = time.Now().Add(min(maxRest, searchShare*time.Since(begin)))
	return d.found
}

func (d *deadlocks) current() bool {
	switch {
	case d.changed == nil:
		return false
	case time.Now().Before(d.rest):
		return true
	}
	select {
	case <-d.changed:
		return false
	default:
		return true
	}
}
