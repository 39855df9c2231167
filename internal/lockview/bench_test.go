package lockview_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const many = 100_000

func held(b *testing.B, n int) (*clientv3.Client, *lockstore.Store) {
	b.Helper()
	m := etcdtest.Cluster(b, 1) // a process of its own, so that its memory and garbage are not ours
	c := m.Client(b)
	h := holders{b, c}
	var batch sync.WaitGroup
	for worker := range 32 {
		batch.Go(func() {
			for i := worker; i < n; i += 32 {
				h.take(name(i), uuid(i), func(d *metadata.Draft) {
					d.Hostname, d.PID = fmt.Sprintf("billing-%d", i%50), i%1000+1
					d.Purpose = fmt.Sprintf("invoices of shard %d", i%100)
				})
			}
		})
	}
	batch.Wait()
	return c, lockstore.New(c, layout)
}

// BenchmarkLoad loads 100,000 locks, and reads the same keys as bare as can be in the same run.
func BenchmarkLoad(b *testing.B) {
	c, store := held(b, many)
	var bare, load time.Duration
	for b.Loop() {
		runtime.GC()
		began := time.Now()
		keys := stream(b, c)
		bare += time.Since(began)
		runtime.GC()
		before := heap()
		began = time.Now()
		v := start(b, source(store))
		until(b, v, "all locks", func() bool { return v.Fresh().Synced })
		load += time.Since(began)
		if len(v.Locks()) != many || keys != 4*many {
			b.Fatalf("%d locks, %d keys", len(v.Locks()), keys)
		}
		b.ReportMetric(float64(heap()-before)/many, "B/lock")
		runtime.KeepAlive(v)
	}
	b.ReportMetric(bare.Seconds()/float64(b.N), "s-bare")
	b.ReportMetric(load.Seconds()/float64(b.N), "s-load")
	b.ReportMetric(load.Seconds()/bare.Seconds(), "times")
}

func stream(b *testing.B, c *clientv3.Client) (keys int) {
	chunks, err := c.GetStream(b.Context(), layout.Prefix(), clientv3.WithPrefix())
	if err != nil {
		b.Fatal(err)
	}
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			b.Fatal(err)
		}
		keys += len(chunk.Kvs)
	}
	return keys
}

// start runs a view that ends before the next one begins.
func start(b *testing.B, src lockview.Source) *lockview.View {
	v := lockview.New(layout, src, lockview.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	go v.Run(ctx)
	b.Cleanup(cancel)
	return v
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkVisible is how long a change takes from the answer of etcd to a reader of the view, with 100,000 locks and 1000 changes
// a second, and what a reader pays who looks at all locks after every change.
func BenchmarkVisible(b *testing.B) {
	c, store := held(b, many)
	h := holders{b, c}
	v := start(b, source(store))
	until(b, v, "all locks", func() bool { return v.Fresh().Synced })
	var mu sync.Mutex
	var delays []time.Duration
	for b.Loop() {
		const workers, changes = 10, 3000
		var all sync.WaitGroup
		tick := time.NewTicker(time.Millisecond)
		turns := make(chan int)
		for range workers {
			all.Go(func() {
				for i := range turns {
					lock := fmt.Sprintf("fresh/%d", i)
					hold := h.take(lock, uuid(i))
					done := time.Now()
					until(b, v, lock, func() bool { r := v.Lock(lock); return r != nil && r.Token == hold.Token })
					d := time.Since(done)
					h.release(hold)
					mu.Lock()
					delays = append(delays, d)
					mu.Unlock()
				}
			})
		}
		for i := range changes {
			<-tick.C
			turns <- i
		}
		close(turns)
		all.Wait()
	}
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "us-p50")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "us-p99")
}
