package joint

import (
	"sync"

	"github.com/clustermutex/unlocker/internal/deadlock"
	"github.com/clustermutex/unlocker/internal/lockview"
)

// deadlocks looks for processes that wait for each other, once for each state of the view however many ask.
type deadlocks struct {
	view    *lockview.View
	mu      sync.Mutex
	changed <-chan struct{} // since the last look
	found   []deadlock.Circle
}

// Deadlocks returns what finds the circles as they are now. What it returns is shared: never write to it.
func Deadlocks(v *lockview.View) func() []deadlock.Circle {
	return (&deadlocks{view: v}).now
}

func (d *deadlocks) now() []deadlock.Circle {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current() {
		return d.found
	}
	d.changed = d.view.Changed() // before the look, so that no change is missed
	d.found = deadlock.Find(d.view.Locks(), d.view.Queues())
	return d.found
}

func (d *deadlocks) current() bool {
	if d.changed == nil {
		return false
	}
	select {
	case <-d.changed:
		return false
	default:
		return true
	}
}
