package dashboard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
)

const runEvery = 3 * time.Second

// Run fetches what pages may need ahead of them, and sends notices of force unlocks, until ctx ends. The pages work
// without it.
func (d *Dashboard) Run(ctx context.Context) error {
	var notifying sync.WaitGroup
	notifying.Go(func() { d.actions.Run(ctx) })
	defer notifying.Wait()
	for {
		now := d.site.Config.Now()
		fresh := d.site.Config.Fresh()
		d.site.History.Observe(now, fresh)
		if d.site.Config.Queues != nil && fresh.Level(now) == locks.Live && d.site.Trends.Due(now) {
			d.site.Trends.Look(now, waiting(d.site.SnapshotAt(now, d.site.Config.Clock(), fresh)))
		}
		if !d.site.Config.HideBacktraces && fresh.Level(now) == locks.Live {
			d.traces.Fetch(ctx, d.site.SnapshotAt(now, d.site.Config.Clock(), fresh))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(runEvery):
		}
	}
}

// waiting is who waits for what, and for whom.
func waiting(s *locks.Snapshot) []trends.Waiting {
	all := make([]trends.Waiting, 0, len(s.Queues))
	for lock, queue := range s.Queues {
		w := trends.Waiting{Lock: lock, N: len(queue)}
		for _, r := range s.Holders(lock) {
			if !slices.Contains(w.Owners, r.Owner) {
				w.Owners = append(w.Owners, r.Owner)
			}
		}
		all = append(all, w)
	}
	return all
}
