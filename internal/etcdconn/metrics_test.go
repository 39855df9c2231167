package etcdconn_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// counting returns an etcd, a client, and what counts the client's requests.
func counting(t *testing.T) (*etcdtest.Server, *clientv3.Client, *prometheus.Registry) {
	t.Helper()
	server := start(t)
	requests := etcdconn.NewRequestMetrics("x")
	c := connect(t, as(server, "", ""), requests.DialOptions()...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(requests)
	return server, c, registry
}

func TestRequestsAreCountedByOperationAndOutcome(t *testing.T) {
	_, c, registry := counting(t)
	ctx := limit(t, proctest.Timeout)
	works(t, c)
	works(t, c)
	if _, err := c.Put(ctx, "a", "1", clientv3.WithLease(4711)); err == nil {
		t.Fatal("etcd took a lease that does not exist")
	}
	if got := counts(t, registry); got["put OK"] != 2 || got["put NotFound"] != 1 {
		t.Errorf("counted are %v", got)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// A list fails midway more often than at its start, and may take any length of time: it is measured to its end.
func TestStreamsAreCountedWhenTheyEnd(t *testing.T) {
	server, c, registry := counting(t)
	ctx := limit(t, proctest.Timeout)
	proctest.Must(t, list(ctx, c))
	if err := list(ctx, c, clientv3.WithRev(1000)); err == nil {
		t.Fatal("etcd listed at a future revision")
	}
	watching := c.Watch(ctx, "a", clientv3.WithCreatedNotify())
	<-watching
	server.Stop()
	gone, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if err := list(gone, c); err == nil {
		t.Fatal("a list from a stopped etcd succeeded")
	}
	got := counts(t, registry)
	if got["rangestream OK"] != 1 || got["rangestream OutOfRange"] != 1 ||
		got["rangestream Unavailable"]+got["rangestream DeadlineExceeded"] == 0 {
		t.Errorf("counted are %v", got)
	}
	if n, err := testutil.GatherAndCount(registry, "x_etcd_request_duration_seconds"); n != 1 || err != nil {
		t.Errorf("durations of %d operations, want those of lists only, %v", n, err)
	}
}

// list reads everything as a stream.
func list(ctx context.Context, c *clientv3.Client, opts ...clientv3.OpOption) error {
	chunks, err := c.GetStream(ctx, "", append(opts, clientv3.WithPrefix())...)
	if err != nil {
		return err
	}
	for chunk := range chunks {
		err = chunk.Err()
	}
	return err
}

// counts returns the numbers of requests by operation and code.
func counts(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	proctest.Must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); f.GetName() == "x_etcd_requests_total" {
				got[labels[1].GetValue()+" "+labels[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return got
}
