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
	var running sync.WaitGroup
	for _, c := range d.servers() {
		running.Go(func() { c.actions.Run(ctx) })
		running.Go(func() { c.fetch(ctx) })
	}
	running.Wait()
	return nil
}

// fetch fetches what pages about a cluster may need.
func (c *server) fetch(ctx context.Context) {
	for {
		now := c.site.Config.Now()
		fresh := c.site.Fresh()
		c.site.History.Observe(now, fresh)
		live := fresh.Level(now) == locks.Live
		if live && c.site.Trends.Due(now) {
			c.site.Trends.Look(now, waiting(c.site.SnapshotAt(now, c.site.Config.View.Clock(), fresh)))
		}
		if !c.site.Config.HideBacktraces && live {
			c.traces.Fetch(ctx, c.site.SnapshotAt(now, c.site.Config.View.Clock(), fresh))
		}
		select {
		case <-ctx.Done():
			return
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
