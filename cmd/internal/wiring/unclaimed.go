package wiring

import (
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/lockview"
)

// unclaimedLocks remembers which locks it has reported, so that an interruption of the watch does not end an alert.
type unclaimedLocks struct {
	view  *lockview.View
	mu    sync.Mutex
	found []unclaimed.Lock
}

// Unclaimed returns a function that returns the locks that nobody takes although somebody waits, and how long it takes
// until there may be another one; zero if none may. They are shared: never write to them.
func Unclaimed(v *lockview.View) func() ([]unclaimed.Lock, time.Duration) {
	return (&unclaimedLocks{view: v}).now
}

func (u *unclaimedLocks) now() ([]unclaimed.Lock, time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := unclaimed.View{}
	if seen.Free, seen.Followed, seen.Synced = u.view.Free(); len(seen.Free) > 0 {
		seen.Queues = u.view.Queues()
	}
	seen.Now = u.view.Clock()
	seen.Wall = time.Now()
	found, next := unclaimed.Find(u.found, seen)
	u.found = found
	return found, next
}
