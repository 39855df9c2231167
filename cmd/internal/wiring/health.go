package wiring

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
)

// healthEvery is how often etcd is asked how it does.
const healthEvery = 15 * time.Second

// Health keeps etcd's own word on how it does, for metrics and pages. Nothing is decided by it.
type Health struct {
	etcd    *clientv3.Client
	timeout time.Duration
	last    atomic.Pointer[etcdconn.Health]
}

// NewHealth returns one that knows nothing before Run, and gives etcd so long for each answer.
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

// Last is the last answer, nil before the first one.
func (h *Health) Last() *etcdconn.Health { return h.last.Load() }

// Alarms are those that etcd has raised, and whether it could be asked.
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
