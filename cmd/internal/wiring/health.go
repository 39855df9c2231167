package wiring

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
)

// healthEvery is how often etcd is asked for its health.
const healthEvery = 15 * time.Second

// Health holds what etcd last reported about itself, for metrics and pages. No decision depends on it.
type Health struct {
	etcd    *clientv3.Client
	timeout time.Duration
	last    atomic.Pointer[etcdconn.Health]
}

// NewHealth returns a Health that is empty until Run asks. timeout bounds each question.
func NewHealth(etcd *clientv3.Client, timeout time.Duration) *Health {
	return &Health{etcd: etcd, timeout: timeout}
}

// Run asks until ctx ends.
func (h *Health) Run(ctx context.Context) error {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		h.ask(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *Health) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	now := etcdconn.CheckHealth(ctx, h.etcd)
	h.last.Store(&now)
}

// Last returns the last answer, nil before the first one.
func (h *Health) Last() *etcdconn.Health { return h.last.Load() }

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
