package pages

import (
	"cmp"
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// WaiterView is one who waits for the lock.
type WaiterView struct {
	Place   int
	Owner   string
	Host    string
	Purpose string
	Since   *phrase.Moment
	Timeout *phrase.Moment
}

// WaiterViews are the waiters of a queue in their order.
func WaiterViews(queue []metadata.Waiter, at phrase.Viewpoint) []WaiterView {
	queue = slices.Clone(queue)
	slices.SortStableFunc(queue, func(a, b metadata.Waiter) int { return cmp.Compare(a.Revision, b.Revision) })
	views := make([]WaiterView, len(queue))
	for i, w := range queue {
		views[i] = WaiterView{i + 1, w.Owner, locks.HostPID(w.Hostname, w.PID), w.Purpose, at.Lasting(w.Since.Time),
			at.Alert(w.TimeoutAt.Time)}
	}
	return views
}
