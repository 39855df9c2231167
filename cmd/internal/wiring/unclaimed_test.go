package wiring_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// A program waits and hangs, and its ticket stays nevertheless. When the holder releases the lock, nobody takes it:
// that is told after half a minute, and no longer when somebody does.
func TestUnclaimedLockIsReportedUntilTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			lock   = "orders/settle"
			holder = "11111111-2222-4333-8444-555555555555"
			waiter = "99999999-2222-4333-8444-555555555555"
		)
		layout := protocol.DefaultLayout()
		held := protocol.KV{Key: layout.Field(lock, metadata.FieldUUID), Value: []byte(holder), CreateRevision: 1,
			ModRevision: 1}
		ticket := protocol.KV{Key: layout.Ticket(lock, waiter), Value: []byte(`{"owner":"search"}`), CreateRevision: 2,
			ModRevision: 2}
		happens := make(chan protocol.Event)
		metrics := observed(t, layout, happens, held, ticket)
		time.Sleep(time.Minute)
		told(t, metrics, 0, time.Time{})

		released := time.Now()
		happens <- protocol.Event{KV: protocol.KV{Key: held.Key, ModRevision: 3}, Deleted: true}
		time.Sleep(unclaimed.After - time.Second)
		told(t, metrics, 0, time.Time{})
		time.Sleep(2 * time.Second)
		told(t, metrics, 1, released)
		time.Sleep(time.Hour)
		told(t, metrics, 1, released)

		happens <- protocol.Event{KV: protocol.KV{Key: held.Key, Value: []byte(waiter), CreateRevision: 4,
			ModRevision: 4}}
		synctest.Wait()
		told(t, metrics, 0, time.Time{})
	})
}

// observed are the metrics of an unlocker that sees these keys and what happens to them until the test ends.
func observed(t *testing.T, layout protocol.Layout, happens <-chan protocol.Event,
	keys ...protocol.KV) *prometheus.Registry {
	t.Helper()
	revision := int64(len(keys))
	view := lockview.New(layout, lockview.Source{
		List: func(_ context.Context, each func(protocol.KV)) (int64, error) {
			for _, kv := range keys {
				each(kv)
			}
			return revision, nil
		},
		Watch: func(ctx context.Context, _ int64, each func(int64, []protocol.Event)) error {
			for {
				select {
				case e := <-happens:
					revision++
					each(revision, []protocol.Event{e})
				case <-time.After(time.Second):
					each(revision, nil)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
	}, lockview.Options{RelistEvery: 24 * time.Hour})
	go view.Run(t.Context())
	synctest.Wait()
	config := wiring.Metrics("unlocker", staleness.DefaultPolicy, view)
	config.Series, config.SeriesLimit = lockmetrics.SeriesAlerting, 10
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(lockmetrics.New(config))
	return metrics
}

// told expects so many locks that nobody takes, and since when the first of them has been free.
func told(t *testing.T, metrics *prometheus.Registry, locks int, since time.Time) {
	t.Helper()
	families, err := metrics.Gather()
	proctest.Must(t, err)
	got := map[string][]*dto.Metric{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()
	}
	if n := got["unlocker_unclaimed_locks"]; len(n) != 1 || n[0].GetGauge().GetValue() != float64(locks) {
		t.Errorf("unclaimed locks: %v, want %d", n, locks)
	}
	series := got["unlocker_lock_unclaimed_since_timestamp_seconds"]
	if len(series) != locks || locks == 1 && series[0].GetGauge().GetValue() != float64(since.Unix()) {
		t.Errorf("told are %v, want %d, since %v", series, locks, since)
	}
}
