// Package wiring has the connections between packages that both daemons need.
package wiring

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Metrics connects the metrics to the view. The program chooses which locks get series of their own, and says by which
// policy they are judged.
func Metrics(policy func() staleness.Policy, v *lockview.View) lockmetrics.Config {
	return lockmetrics.Config{
		Policy: policy,
		Locks:  func() iter.Seq[*metadata.Record] { return slices.Values(v.Shown()) },
		Queues: v.Queues, Clock: v.Clock, Deadlocks: Deadlocks(v),
		Unclaimed:     Unclaimed(v),
		Delays:        func() int { return len(v.Delays()) },
		Inconsistent:  func() []diagnosis.Inconsistent { return Inconsistent(v) },
		Disagreements: func() int { return len(diagnosis.Disagreements(protocol.Presences(v.Unlockers()))) },
		Fresh:         v.Fresh,
	}
}

// ViewMetrics returns the metrics of how current a program's view is.
func ViewMetrics(namespace string, v *lockview.View, alarms func() ([]string, bool)) *lockmetrics.View {
	return lockmetrics.NewView(lockmetrics.ViewConfig{Namespace: namespace, Fresh: v.Fresh, Alarms: alarms,
		Activity: func() lockmetrics.Activity { return activity(v.Stats()) }})
}

// Inconsistent returns the locks in a state that no client of the protocol leaves behind.
func Inconsistent(v *lockview.View) []diagnosis.Inconsistent {
	return diagnosis.FindInconsistent(func(yield func(string, map[string]any) bool) {
		for _, r := range v.Locks() {
			if r.Token != 0 && !yield(r.Name, r.Attributes) {
				return
			}
		}
	}, v.Delays())
}

func activity(s lockview.Stats) lockmetrics.Activity {
	return lockmetrics.Activity{
		Resyncs: s.Resyncs, Restarts: s.WatchRestarts, MetadataErrors: texts(s.MetadataErrors),
		Events: map[string]uint64{"put": s.Puts, "delete": s.Deletes},
	}
}

func texts(counts map[metadata.ProblemKind]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(counts))
	for reason, n := range counts {
		all[string(reason)] = n
	}
	return all
}

// NewTrouble returns the part that finds out why etcd is unusable while the view is not up to date.
func NewTrouble(etcd *clientv3.Client, l protocol.Layout, v *lockview.View, log zerolog.Logger) *etcdconn.FaultMonitor {
	isUsable := func() bool { return v.Fresh().Synced }
	return &etcdconn.FaultMonitor{Etcd: etcd, Prefix: l.Prefix(), IsUsable: isUsable, Log: log}
}

// AddEtcdCondition adds the condition "etcd" to a program's readiness: the view is up to date. It is satisfied before
// the first list, for which the program has a condition of its own. To keep a program in rotation that serves the last
// known state while etcd is unavailable, probe with exclude=etcd.
func AddEtcdCondition(r *daemon.Readiness, v *lockview.View, t *etcdconn.FaultMonitor) {
	r.Add("etcd", func() error {
		if f := v.Fresh(); !f.Synced && !f.HeardAt.IsZero() {
			return errors.New("the view of the locks is not current: " + Cause(f, t))
		}
		return nil
	})
}

// Cause returns why the view is not up to date, from the best source; empty if it is.
func Cause(f protocol.Freshness, t *etcdconn.FaultMonitor) string {
	if f.Synced {
		return ""
	}
	return cmp.Or(t.Cause(), f.Cause)
}

// healthEvery is how often the health of etcd is checked.
const healthEvery = 15 * time.Second

// Health checks the health of etcd, for metrics and pages. No decision depends on it.
type Health struct {
	etcd           *clientv3.Client
	timeout        time.Duration
	log            zerolog.Logger
	last           atomic.Pointer[etcdconn.Health]
	warnedOutdated map[string]bool // by warning about an outdated version
}

// NewHealth returns a Health that is unknown before Run. timeout bounds each check.
func NewHealth(etcd *clientv3.Client, timeout time.Duration, log zerolog.Logger) *Health {
	return &Health{etcd: etcd, timeout: timeout, log: log, warnedOutdated: map[string]bool{}}
}

// Run checks until ctx ends.
func (h *Health) Run(ctx context.Context) error {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		h.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *Health) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	now := etcdconn.CheckHealth(ctx, h.etcd)
	if last := h.last.Load(); last != nil {
		for i := range now.Members {
			now.Members[i].Certificate = cmp.Or(now.Members[i].Certificate, last.Members[i].Certificate)
		}
	}
	h.last.Store(&now)
	for _, m := range now.Members {
		if m.WhyOutdated != "" && !h.warnedOutdated[m.WhyOutdated] {
			h.warnedOutdated[m.WhyOutdated] = true
			h.log.Warn().Str("endpoint", m.Endpoint).Msg(m.WhyOutdated)
		}
	}
}

// Last returns the result of the last check, nil before the first one.
func (h *Health) Last() *etcdconn.Health { return h.last.Load() }

// ServerCertificate returns the certificate with which the first member of etcd can no longer be used; nil if none is
// known. It is kept when it has expired, and the member is no longer trusted.
func (h *Health) ServerCertificate() *x509.Certificate {
	last := h.last.Load()
	if last == nil {
		return nil
	}
	var all []*x509.Certificate
	for _, m := range last.Members {
		all = append(all, m.Certificate)
	}
	return certificate.First(all)
}

// Alarms returns the alarms that etcd has raised, and whether they are known.
func (h *Health) Alarms() (kinds []string, known bool) {
	last := h.last.Load()
	if last == nil || last.Problem != "" {
		return nil, false
	}
	for _, a := range last.Alarms {
		kinds = append(kinds, a.Kind)
	}
	return kinds, true
}

// deadlocks finds deadlocks: at most once per state of the view, however many callers there are, and less often if a
// search takes long because of many waiters.
type deadlocks struct {
	view       *lockview.View
	mu         sync.Mutex
	changed    <-chan struct{} // closed when the view has changed since the last search
	nextSearch time.Time       // the earliest time of the next search
	found      []deadlock.Cycle
}

const (
	searchShare = 20 // searching may take 1/20 of the time
	maxPause    = 30 * time.Second
)

// Deadlocks returns a function that returns the current cycles. They are shared: never write to them.
func Deadlocks(v *lockview.View) func() []deadlock.Cycle {
	return (&deadlocks{view: v}).find
}

func (d *deadlocks) find() []deadlock.Cycle {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isCurrent() {
		return d.found
	}
	d.changed = d.view.Changed() // before the search, so that no change is missed
	begin := time.Now()
	d.found = deadlock.Find(d.view.Locks(), d.view.Queues())
	d.nextSearch = time.Now().Add(min(maxPause, searchShare*time.Since(begin)))
	return d.found
}

func (d *deadlocks) isCurrent() bool {
	switch {
	case d.changed == nil:
		return false
	case time.Now().Before(d.nextSearch):
		return true
	}
	select {
	case <-d.changed:
		return false
	default:
		return true
	}
}

// Unclaimed returns a function that returns the unclaimed locks. They are shared: never write to them. It remembers
// which locks it has reported, so that an interruption of the watch does not end an alert.
func Unclaimed(v *lockview.View) func() []diagnosis.Unclaimed {
	var mu sync.Mutex
	var found []diagnosis.Unclaimed
	return func() []diagnosis.Unclaimed {
		mu.Lock()
		defer mu.Unlock()
		seen := diagnosis.FreeLocks{}
		if seen.Free, seen.Followed, seen.Synced = v.Free(); len(seen.Free) > 0 {
			seen.Queues = v.Queues()
		}
		seen.Now = v.Clock()
		seen.Wall = time.Now()
		found = diagnosis.FindUnclaimed(found, seen)
		return found
	}
}
