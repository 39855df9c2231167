package lockstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// BenchmarkMassExpiry ends 10,000 locks at once: by AutoUnlock, each guarded and with its history record, and, in the
// same run, by the expiry of as many leases, which is how etcd itself would do it.
func BenchmarkMassExpiry(b *testing.B) {
	const locks = 10_000
	for b.Loop() {
		w := start(b)
		b.StopTimer()
		removals := w.expired("lock/%05d", locks)
		b.StartTimer()
		began := time.Now()
		w.removeAll(removals)
		ours := time.Since(began)
		b.StopTimer()
		theirs := leaseExpiry(b, w, locks)
		b.ReportMetric(locks/ours.Seconds(), "locks/s")
		b.ReportMetric(locks/theirs.Seconds(), "leases/s")
		b.ReportMetric(theirs.Seconds()/ours.Seconds(), "times")
		b.StartTimer()
	}
}

// leaseExpiry measures etcd's expiry of this many keys whose leases end in the same second.
func leaseExpiry(b *testing.B, w world, n int) time.Duration {
	const ttl = 20
	leases := make([]clientv3.LeaseID, n)
	each(b, n, func(i int) {
		resp, err := w.etcd.Grant(b.Context(), ttl)
		if err != nil {
			b.Error(err)
			return
		}
		leases[i] = resp.ID
		w.put(fmt.Sprintf("/leased/%d", i), "", clientv3.WithLease(resp.ID))
	})
	each(b, n, func(i int) { // let them begin together
		if _, err := w.etcd.KeepAliveOnce(b.Context(), leases[i]); err != nil {
			b.Error(err)
		}
	})
	events := w.etcd.Watch(b.Context(), "/leased/", clientv3.WithPrefix(), clientv3.WithFilterPut())
	var first, last time.Time
	for gone := 0; gone < n; {
		resp := <-events
		if first.IsZero() {
			first = time.Now()
		}
		gone, last = gone+len(resp.Events), time.Now()
	}
	return last.Sub(first)
}

// each calls f for 0 to n-1, 64 at a time, and ends the test if one of them failed.
func each(tb testing.TB, n int, f func(int)) {
	tb.Helper()
	var workers sync.WaitGroup
	for worker := range 64 {
		workers.Go(func() {
			for i := worker; i < n; i += 64 {
				f(i)
			}
		})
	}
	workers.Wait()
	if tb.Failed() {
		tb.FailNow() // one of them ended early
	}
}

// others lets 16 clients take and release their own locks until f returns. It returns the sorted latencies.
func others(w world, f func()) (took []time.Duration) {
	ctx, cancel := context.WithCancel(w.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	for client := range 16 {
		clients.Go(func() {
			name := fmt.Sprintf("other/%d", client)
			id := uuid(1_000_000 + client)
			for ctx.Err() == nil {
				began := time.Now()
				resp, err := locktxn.Acquire(w.l, locktxn.PlainClaim(name), id,
					[]metadata.Field{{Name: lockrecord.FieldUUID, Value: id}},
					false).Commit(context.Background(), w.etcd)
				if err != nil || !resp.Succeeded {
					w.Error(resp, err)
					return
				}
				w.release(&metadata.Record{Name: name, UUID: id, Token: resp.Header.Revision})
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	f()
	cancel()
	clients.Wait()
	slices.Sort(took)
	return took
}
