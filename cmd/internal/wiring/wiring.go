// Package wiring has the connections between packages that both daemons need.
package wiring

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ViewMetrics returns the metrics of how current a program's view is.
func ViewMetrics(namespace string, v *lockview.View, alarms func() ([]string, bool)) *lockmetrics.View {
	return lockmetrics.NewView(lockmetrics.ViewConfig{Namespace: namespace, Fresh: v.Fresh, Alarms: alarms,
		Activity: func() lockmetrics.Activity { return activity(v.Stats()) }})
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
