//go:build browser

package browser

import (
	"strings"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// night fills the stage with what a person might find at three in the morning.
func (s *stage) night() {
	s.t.Helper()
	for _, l := range nightLocks {
		s.hold(l)
	}
	s.put("reports/weekly", lockrecord.FieldUUID, "5f0a2c1e-8d3b-4f7e-9a61-0c2b4d6e8f10", lockrecord.FieldAlertAt,
		"soon",
		lockrecord.FieldAutoUnlockAt, "2026-11-21 08:00", lockrecord.FieldHostname, "legacy-3", lockrecord.FieldOwner,
		"reports", lockrecord.FieldPurpose, "weekly report, by a script")
	s.wait("billing/invoice-run", "billing", "billing-7f9c5d-8kw4t", "invoices of tenant 41, second try",
		9*time.Minute+12*time.Second)
	s.wait("billing/invoice-run", "dunning", "dunning-6bd8f-tz9vk", "reminders need the invoices",
		6*time.Minute+40*time.Second)
	s.wait("billing/invoice-run", "ledger", "ledger-1", "closing of the day", 2*time.Minute+3*time.Second)
	s.wait("catalog/sync/eu", "search", "search-6b4f9-m2c8d", "reindex after the sync", 4*time.Minute)
	s.wait("media/transcoders", "media", "transcoder-7", "feature film", 70*time.Second)
	s.wait("drm/rotate-keys", "drm", "drm-1", "rotation of the content keys", 50*time.Second)
}

// circle adds two processes that wait for each other.
func (s *stage) circle() {
	s.t.Helper()
	s.hold(lock{name: "shop/stock", owner: "orders", host: "orders-0", purpose: "reservation", held: 3 * time.Minute,
		alert: 20 * time.Minute, unlock: time.Hour})
	s.hold(lock{name: "shop/prices", owner: "pricing", host: "pricing-2", purpose: "campaign of the week",
		held: 4 * time.Minute, alert: 20 * time.Minute, unlock: time.Hour})
	s.wait("shop/prices", "orders", "orders-0", "price of an order", 170*time.Second)
	s.wait("shop/stock", "pricing", "pricing-2", "what is left of it", 150*time.Second)
}

// nights are runs of the invoices that are over, as a dashboard knows them that has watched for a week.
func (s *stage) nights() {
	s.t.Helper()
	for i, e := range []metadata.Ending{
		{Identity: metadata.Identity{Hostname: "billing-7f9c5d-x2lqv"}, Cause: metadata.EndingReleased},
		{Identity: metadata.Identity{Hostname: "billing-7f9c5d-8kw4t"}, Cause: metadata.EndingReleased},
		{Identity: metadata.Identity{Hostname: "billing-5b7d4c-m9hrc"}, Cause: metadata.EndingForced,
			By:     "bob@example.org",
			Reason: "its node was taken out of the cluster (BILL-2190)"},
		{Identity: metadata.Identity{Hostname: "billing-5b7d4c-m9hrc"}, Cause: metadata.EndingReleased},
		{Identity: metadata.Identity{Hostname: "billing-5b7d4c-zt4wd"}, Cause: metadata.EndingAutoUnlocked,
			By: "unlocker-7c9d8-2xk5p", Reason: "its auto_unlock_at passed and its holder did not extend it"},
		{Identity: metadata.Identity{Hostname: "billing-5b7d4c-zt4wd"}, Cause: metadata.EndingReleased},
	} {
		began := time.Now().Add(-time.Duration(i+1)*24*time.Hour - 11*time.Minute)
		took := time.Duration(6+i%3) * time.Minute
		if e.Cause != metadata.EndingReleased {
			took = time.Duration(13+3*i) * time.Minute
		}
		e.Name = "billing/invoice-run"
		e.UUID = uuid.NewString()
		e.Token = -int64(i + 1) // no hold of the stage has it
		e.Owner = "billing"
		e.PID = 1
		e.Purpose = "nightly invoices"
		e.LockedAt = metadata.Time{Time: began}
		e.EndedAt = metadata.Time{Time: began.Add(took)}
		e.AlertAt = metadata.Time{Time: began.Add(8 * time.Minute)}
		e.AutoUnlockAt = metadata.Time{Time: began.Add(24 * time.Minute)}
		s.do(clientv3.OpPut(s.layout.History(e.UUID), protocol.Marshal(e)))
	}
}

// delayed leaves a lock that nobody holds in a lock delay, and returns the hold that this follows.
func (s *stage) delayed(lock string) (hold string) {
	s.t.Helper()
	hold = uuid.NewString()
	lease, err := s.client.Grant(s.t.Context(), 600)
	if err != nil {
		s.t.Fatal(err)
	}
	s.do(clientv3.OpPut(s.layout.Delay(lock), protocol.Marshal(metadata.LockDelay{Name: lock, UUID: hold, Token: 3,
		Owner: "billing", Hostname: "billing-3", Cause: metadata.EndingForced, By: "bob@example.org",
		At: metadata.Time{Time: time.Now()}, Seconds: 600}), clientv3.WithLease(lease.ID)))
	return hold
}

// hour is what else happened in the hour before: a job that runs every few minutes, and holds that did not end well.
func (s *stage) hour() {
	s.t.Helper()
	over := func(lock, host, ended string, began, took, alert time.Duration) {
		at := time.Now().Add(-began)
		e := metadata.Ending{Name: lock, UUID: uuid.NewString(), Token: -int64(began), Cause: ended,
			Identity: metadata.Identity{Owner: strings.Split(lock, "/")[0], Hostname: host, PID: 1},
			LockedAt: metadata.Time{Time: at}, AlertAt: metadata.Time{Time: at.Add(alert)},
			EndedAt: metadata.Time{Time: at.Add(took)}}
		s.do(clientv3.OpPut(s.layout.History(e.UUID), protocol.Marshal(e)))
	}
	for began := 57 * time.Minute; began > 5*time.Minute; began -= 8 * time.Minute {
		over("cache/warm/search", "cache-5d7f9-k2mxv", metadata.EndingReleased, began, began/16+time.Minute,
			5*time.Minute)
		over("mail/queue", "mailer-3", metadata.EndingReleased, began, 7*time.Minute, 10*time.Minute)
	}
	over("deploy/storefront", "runner-4", metadata.EndingForced, 49*time.Minute, 17*time.Minute, 10*time.Minute)
	over("deploy/storefront", "runner-9", metadata.EndingReleased, 30*time.Minute, 9*time.Minute, 10*time.Minute)
	over("drm/rotate-keys", "drm-1", metadata.EndingAutoUnlocked, 40*time.Minute, 20*time.Minute, 8*time.Minute)
	over("crm/export/hubspot", "crm-worker-1", metadata.EndingAbandoned, 33*time.Minute, 21*time.Minute, 30*time.Minute)
}

var nightLocks = []lock{
	{name: "billing/invoice-run", owner: "billing", host: "billing-7f9c5d-x2lqv", pid: "1",
		purpose: "nightly invoices, tenant 41 of 212", trace: rubyTrace, held: 22*time.Minute + 8*time.Second,
		alert: -14 * time.Minute, unlock: 102 * time.Second, alive: "tenant 41 of 212",
		more: []string{"month", "2026-10", "ticket", "BILL-2207", "client", "mutex-ruby/1.4.2"}},
	{name: "catalog/sync/eu", owner: "catalog", host: "catalog-55d8b-q7xzn", pid: "14",
		purpose: "import of the supplier's price list", trace: pythonTrace,
		held: 48 * time.Minute, alert: -3*time.Minute - 20*time.Second, unlock: 12*time.Minute + 30*time.Second,
		alive: "9,120 of 41,377 items"},
	{name: "search/reindex", owner: "search", host: "search-6b4f9-p0d1s", pid: "1",
		purpose: "reindex after a change of the mapping", trace: goTrace,
		held: 31 * time.Minute, alert: -46 * time.Second, unlock: 29 * time.Minute},
	{name: "drm/rotate-keys", owner: "drm", host: "drm-0", pid: "1", purpose: "rotation of the content keys",
		held: 4*time.Minute + 5*time.Second, alert: 6*time.Minute + 40*time.Second, unlock: 16 * time.Minute},
	{name: "deploy/storefront", owner: "deploy", host: "runner-17", pid: "20411", purpose: "release 2026.11.3",
		held: 95 * time.Second, alert: 8*time.Minute + 30*time.Second, unlock: 28 * time.Minute},
	{name: "nightly/database dump", owner: "backup", host: "cron-1", pid: "31207", purpose: "dump of the main database",
		held: 72 * time.Minute, alert: 48*time.Minute + 10*time.Second, unlock: 3 * time.Hour},
	{name: "media/transcoders#1", owner: "media", host: "transcoder-4", pid: "8812", purpose: "trailer, 4 renditions",
		held: 17 * time.Minute, alert: 43*time.Minute + 10*time.Second, unlock: 2 * time.Hour,
		more: []string{metadata.AttributeKind, metadata.KindSemaphore, metadata.AttributeLimit, "3"}},
	{name: "media/transcoders#2", owner: "media", host: "transcoder-9", pid: "9177", purpose: "episode 3, 6 renditions",
		held: 11 * time.Minute, alert: 49*time.Minute + 10*time.Second, unlock: 2 * time.Hour,
		more: []string{metadata.AttributeKind, metadata.KindSemaphore, metadata.AttributeLimit, "3",
			metadata.AttributePermits, "2"}},
	{name: "migrations/orders", owner: "orders", host: "orders-migrate-5k2zt", pid: "1",
		purpose: "index on orders.placed_at", held: 3*time.Hour + 10*time.Minute,
		alert: 50*time.Minute + 20*time.Second, unlock: 5*time.Hour + 30*time.Minute},
	{name: "crm/export/hubspot", owner: "crm", host: "crm-worker-2", pid: "4410", purpose: "nightly export of contacts",
		held: 40 * time.Second, alert: 4*time.Minute + 30*time.Second, unlock: 20 * time.Minute},
	{name: "cache/warm/homepage", owner: "storefront", host: "storefront-77c9d-lw8bq", pid: "1",
		purpose: "after the release", held: 12 * time.Second, alert: 3*time.Minute + 10*time.Second,
		unlock: 10 * time.Minute},
}

// Backtraces as the runtimes write them.
const (
	rubyTrace = `app/jobs/invoice_run.rb:118:in 'InvoiceRun#perform_tenant'
app/jobs/invoice_run.rb:64:in 'block in InvoiceRun#perform'
app/jobs/invoice_run.rb:61:in 'Array#each'
app/jobs/invoice_run.rb:61:in 'InvoiceRun#perform'
/usr/local/bundle/gems/mutex-ruby-1.4.2/lib/mutex/lock.rb:88:in 'Mutex::Lock#hold'
/usr/local/bundle/gems/activejob-7.2.1/lib/active_job/execution.rb:68:in 'ActiveJob::Execution#_perform_job'
/usr/local/bundle/gems/activesupport-7.2.1/lib/active_support/callbacks.rb:110:` +
		`in 'ActiveSupport::Callbacks#run_callbacks'
/usr/local/bundle/gems/activejob-7.2.1/lib/active_job/execution.rb:50:in 'ActiveJob::Execution#perform_now'
/usr/local/bundle/gems/sidekiq-7.3.2/lib/sidekiq/processor.rb:220:in 'Sidekiq::Processor#execute_job'
/usr/local/bundle/gems/sidekiq-7.3.2/lib/sidekiq/processor.rb:86:in 'Sidekiq::Processor#process_one'
/usr/local/bundle/gems/sidekiq-7.3.2/lib/sidekiq/component.rb:10:in 'Sidekiq::Component#watchdog'`
	pythonTrace = `  File "/srv/catalog/sync/eu.py", line 212, in import_price_list
    for item in supplier.items():
  File "/srv/catalog/sync/base.py", line 47, in run
    self.import_price_list(supplier)
  File "/usr/lib/python3.12/site-packages/celery/app/trace.py", line 477, in trace_task
    R = retval = fun(*args, **kwargs)`
	goTrace = `example.com/search/internal/reindex.(*Indexer).Run
	/src/search/internal/reindex/indexer.go:91
example.com/search/cmd/indexer.main
	/src/search/cmd/indexer/main.go:34
runtime.main
	/usr/local/go/src/runtime/proc.go:285`
)
