package wiring

import (
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/deadlock"
	"github.com/clustermutex/unlocker/internal/lockview"
)

// deadlocks looks for processes that wait for each other, once for each state of the view however many ask, and seldom
// where so many wait that a look takes long.
type deadlocks struct {
	view    *lockview.View
	mu      sync.Mutex
	changed <-chan struct{} // since the last look
	rest    time.Time       // no other look before this
	found   []deadlock.Cycle
}

const (
	lookShare = 20 // looking may take this part of the time
	maxRest   = 30 * time.Second
)

// Deadlocks returns what finds the cycles as they are now. What it returns is shared: never write to it.
func Deadlocks(v *lockview.View) func() []deadlock.Cycle {
	return (&deadlocks{view: v}).now
}

func (d *deadlocks) now() []deadlock.Cycle {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current() {
		return d.found
	}
	d.changed = d.view.Changed() // before the look, so that no change is missed
	begin := time.Now()
	d.found = deadlock.Find(d.view.Locks(), d.view.Queues())
	d.rest = time.Now().Add(min(maxRest, lookShare*time.Since(begin)))
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
