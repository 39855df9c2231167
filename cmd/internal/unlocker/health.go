package unlocker

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
)

// healthEvery is how often etcd is asked how it does.
const healthEvery = 15 * time.Second

// health keeps etcd's own word on how it does, for the metrics and the page. Nothing is decided by it.
type health struct {
	etcd    *clientv3.Client
	timeout time.Duration
	last    atomic.Pointer[etcdconn.Health]
}

// Run asks until ctx ends.
func (h *health) Run(ctx context.Context) error {
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

func (h *health) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	now := etcdconn.CheckHealth(ctx, h.etcd)
	h.last.Store(&now)
}

// alarms are those that etcd has raised, and whether it could be asked.
func (h *health) alarms() (kinds []string, known bool) {
	last := h.last.Load()
	if last == nil || last.Problem != "" {
		return nil, false
	}
	for _, a := range last.Alarms {
		kinds = append(kinds, a.Kind)
	}
	return kinds, true
}
