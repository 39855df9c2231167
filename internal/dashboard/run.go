package dashboard

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func (d *Dashboard) build(config app.Config, urls app.URLs, templates app.Templates) {
	d.app = &app.App{Config: config, URLs: urls, Templates: templates,
		History: etcdread.NewHistory(config.Store, config.Relists, config.Log),
		Traces:  stacktrace.NewParser(config.Sources)}
	d.pages = pages.New(d.app)
	d.api = api.New(d.app, d.pages)
	d.actions = actions.New(d.app, d.pages, d.api)
}

// Ended records a hold that has ended; ending is nil if the holder released it. It does not block.
func (d *Dashboard) Ended(r *metadata.Record, ending *metadata.Ending) {
	d.app.Intervals.AddHold(d.app.History.AddEnded(r, ending, d.app.Config.Now()))
}

// Acquired records a waiter that got its lock. It does not block.
func (d *Dashboard) Acquired(w metadata.Waiter) { d.app.Intervals.AddAcquired(&w, d.app.Config.Now()) }

const observeInterval = 3 * time.Second

// Run observes queues and the watch for the timeline, until ctx ends. The pages work without it.
func (d *Dashboard) Run(ctx context.Context) error {
	for {
		now := d.app.Config.Now()
		fresh := d.app.Fresh()
		d.app.History.Observe(now, fresh)
		if fresh.Level(now) == locks.Live {
			d.app.Intervals.UpdateQueues(d.app.Config.Snapshots.Current(now, fresh).Queues, now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(observeInterval):
		}
	}
}
