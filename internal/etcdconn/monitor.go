package etcdconn

import (
	"cmp"
	"context"
	"crypto/x509"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
)

// healthEvery is how often the health of etcd is checked.
const healthEvery = 15 * time.Second

// HealthMonitor checks the health of etcd, for metrics and pages. No decision depends on it.
type HealthMonitor struct {
	etcd           *clientv3.Client
	timeout        time.Duration
	log            zerolog.Logger
	last           atomic.Pointer[Health]
	warnedOutdated map[string]bool // by warning about an outdated version
}

// NewHealthMonitor returns a monitor whose results are unknown before Run. timeout bounds each check.
func NewHealthMonitor(etcd *clientv3.Client, timeout time.Duration, log zerolog.Logger) *HealthMonitor {
	return &HealthMonitor{etcd: etcd, timeout: timeout, log: log, warnedOutdated: map[string]bool{}}
}

// Run checks until ctx ends.
func (h *HealthMonitor) Run(ctx context.Context) error { return every(ctx, healthEvery, h.check) }

func (h *HealthMonitor) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	now := CheckHealth(ctx, h.etcd)
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
func (h *HealthMonitor) Last() *Health { return h.last.Load() }

// ServerCertificate returns the certificate with which the first member of etcd can no longer be used; nil if none is
// known. It is kept when it has expired, and the member is no longer trusted.
func (h *HealthMonitor) ServerCertificate() *x509.Certificate {
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
func (h *HealthMonitor) Alarms() (kinds []string, known bool) {
	last := h.last.Load()
	if last == nil || last.Problem != "" {
		return nil, false
	}
	for _, a := range last.Alarms {
		kinds = append(kinds, a.Kind)
	}
	return kinds, true
}
