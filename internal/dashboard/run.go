package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
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
