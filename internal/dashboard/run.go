package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// build makes what answers requests.
func (d *Dashboard) build(config setup.Config, templates site.Templates) {
	d.site = &site.Site{Config: config, URLs: d.urls, Templates: templates,
		Snapshots: locks.NewSnapshots(locks.Source{Locks: config.View.Shown, Queues: config.View.Queues,
			Fate: config.Fate}),
		History: history.NewStore(history.Source{History: config.Store.ReadHistory, Audit: config.Store.ReadAudit,
			Relists: config.Relists, Log: config.Log}),
	}
	d.traces = backtraces.NewStore(config.Store.ReadRecord, stacktrace.NewReader(config.Sources))
	d.pages = pages.New(d.site, d.traces)
	d.api = api.New(d.site, d.pages)
	d.actions = actions.New(d.site, d.traces, d.api)
}

// Ended notes a hold that went; ending is nil when its holder released it. It is quick.
func (d *Dashboard) Ended(r *metadata.Record, ending *metadata.Ending) {
	d.site.Intervals.Saw(d.site.History.See(r, ending, d.site.Config.Now()))
}

// Took notes a waiter that got its lock. It is quick.
func (d *Dashboard) Took(w metadata.Waiter) { d.site.Intervals.Took(&w, d.site.Config.Now()) }

// Ready reports whether there is anything to show. It stays true when etcd is away: the last known snapshot is worth
// most then.
func (d *Dashboard) Ready() bool { return d.site.Fresh().Level(d.site.Config.Now()) != locks.Never }

var _ http.Handler = (*Dashboard)(nil)

const runEvery = 3 * time.Second

// Run fetches what pages may need ahead of them, until ctx ends. The pages work without it.
func (d *Dashboard) Run(ctx context.Context) error {
	for {
		now := d.site.Config.Now()
		fresh := d.site.Fresh()
		d.site.History.Observe(now, fresh)
		live := fresh.Level(now) == locks.Live
		if live {
			d.site.Intervals.Look(d.site.Config.View.Queues(), now)
		}
		if !d.site.Config.HideBacktraces && live {
			d.traces.Fetch(ctx, d.site.SnapshotAt(now, d.site.Config.View.Clock(), fresh))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(runEvery):
		}
	}
}
