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
	server := etcdtest.Start(t)
	requests := etcdconn.NewRequests("x")
	c := connect(t, as(server, "", ""), requests.DialOptions()...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(requests)
	return server, c, registry
}

func TestRequestsAreCountedByOperationAndOutcome(t *testing.T) {
	t.Parallel()
	_, c, registry := counting(t)
	ctx := limit(t, proctest.Timeout)
	works(t, c)
	works(t, c)
	if _, err := c.Put(ctx, "a", "1", clientv3.WithLease(4711)); err == nil {
		t.Fatal("etcd took a lease that does not exist")
	}
	counted(t, registry, "put", "OK", 2)
	counted(t, registry, "put", "NotFound", 1)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// A list fails midway more often than at its start, and may take any length of time: it is measured to its end.
func TestStreamsAreCountedWhenTheyEnd(t *testing.T) {
	t.Parallel()
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
	counted(t, registry, "rangestream", "OK", 1)
	counted(t, registry, "rangestream", "OutOfRange", 1)
	if n := counter(t, registry, "rangestream", "Unavailable") + counter(t, registry, "rangestream",
		"DeadlineExceeded"); n == 0 {
		t.Error("a failed list is not counted")
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

func counted(t *testing.T, g prometheus.Gatherer, op, code string, want float64) {
	t.Helper()
	if got := counter(t, g, op, code); got != want {
		t.Errorf("%v requests %s with code %s, want %v", got, op, code, want)
	}
}

func counter(t *testing.T, g prometheus.Gatherer, op, code string) float64 {
	t.Helper()
	families, err := g.Gather()
	proctest.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "x_etcd_requests_total" && labels["op"] == op && labels["code"] == code {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
