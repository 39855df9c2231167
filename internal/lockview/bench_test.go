package lockview_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
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
					d.Hostname = fmt.Sprintf("billing-%d", i%50)
					d.PID = int64(i%1000 + 1)
					d.Purpose = fmt.Sprintf("invoices of shard %d", i%100)
				})
			}
		})
	}
	batch.Wait()
	return c, lockstore.New(c, layout)
}

// BenchmarkLoad loads 100,000 locks and, in the same run, reads the same keys without decoding them.
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

// BenchmarkVisible measures the time from etcd's answer to the holder until a reader of the view sees the lock,
// with 100,000 other locks and 1000 locks a second taken and released.
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

// BenchmarkBuild measures the view's own share of loading, and its memory, without etcd.
func BenchmarkBuild(b *testing.B) {
	for _, c := range []struct {
		n int
		metadata.Process
	}{
		{n: 10_000},
		{n: 100_000},
		{n: 1_000_000},
		{100_000, metadata.Process{BootID: "2f0c1a52-8f0a-4f0e-9b5c-0a3d5ad1c1c4", Start: 812_345,
			PIDNamespace: 4026531836}},
		{100_000, metadata.Process{PodNamespace: "billing", PodName: "invoices-7d4b9c6f5-x2x7k",
			PodUID: "9d7c9a9e-54b1-4a51-8a57-2b7a8c3e1f10", Container: "worker", Start: 812_345}},
	} {
		n := c.n
		b.Run(fmt.Sprint(n, " locks, ", len(c.Members()), " members of the process"), func(b *testing.B) {
			src := synthetic(b, n, c.Process)
			var before int64
			var took time.Duration
			for b.Loop() {
				before = heap()
				began := time.Now()
				v := start(b, src)
				until(b, v, "all locks", func() bool { return v.Fresh().Synced })
				took += time.Since(began)
				if len(v.Locks()) != n {
					b.Fatal(len(v.Locks()))
				}
				b.ReportMetric(float64(heap()-before)/float64(n), "B/lock")
				runtime.KeepAlive(v)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(n), "ns/lock")
		})
	}
}

// synthetic is a source of n held locks that it generates on reading, and passes on the changes that it is given.
func synthetic(b *testing.B, n int, p metadata.Process, turns ...chan turn) lockview.Source {
	template := lock(b, "x", uuid(0), func(d *metadata.Draft) { d.Process = p })
	start := p.Start
	return lockview.Source{
		List: func(_ context.Context, each func(protocol.KV)) (int64, error) {
			for i := range n {
				for _, o := range template {
					kv := protocol.KV{Key: layout.Field(name(i), layout.Parse(o.key).ID), Value: []byte(o.value),
						CreateRevision: int64(i + 1), ModRevision: int64(i + 1)}
					if layout.Parse(o.key).ID == metadata.FieldUUID {
						kv.Value = []byte(uuid(i))
					}
					if start != 0 && layout.Parse(o.key).ID == metadata.FieldMetadata { // ten locks a process
						kv.Value = []byte(strings.Replace(o.value, fmt.Sprint(start), fmt.Sprint(start+int64(i)/10), 1))
					}
					each(kv)
				}
			}
			return int64(n), nil
		},
		Watch: func(ctx context.Context, _ int64, each func(int64, []protocol.Event)) error {
			if len(turns) == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			for t := range turns[0] {
				each(t.revision, t.events)
			}
			return ctx.Err()
		},
	}
}

// BenchmarkChange measures what one change among this many locks costs the view, be it an extension or a lock taken and
// released, and what it costs a reader to look at all locks after a change.
func BenchmarkChange(b *testing.B) {
	extended := func(i int) []protocol.Event {
		at := fmt.Sprintf("15537%05d", i%100_000)
		return events(put(layout.Field(name(i), metadata.FieldAlertAt), at),
			put(layout.Field(name(i), metadata.FieldAutoUnlockAt), at), put(layout.Field(name(i), metadata.FieldAlive),
				at))
	}
	for _, c := range []struct {
		name string
		of   func(i int) []protocol.Event
		look bool
	}{
		{"extended", extended, false},
		{"extended and all locks looked at", extended, true},
		{"taken", func(i int) []protocol.Event { return events(lock(b, name(i)+"-next", uuid(i))...) }, false},
	} {
		for _, n := range []int{10_000, many} {
			b.Run(fmt.Sprintf("%s among %d", c.name, n), func(b *testing.B) {
				turns := make(chan turn)
				defer close(turns)
				v := start(b, synthetic(b, n, metadata.Process{}, turns))
				until(b, v, "all locks", func() bool { return v.Fresh().Synced })
				next := int64(n)
				b.ReportAllocs()
				for b.Loop() {
					next++
					t := turn{next, c.of(int(next*7919) % n)}
					for i := range t.events {
						t.events[i].ModRevision = next
						if t.events[i].CreateRevision == 0 {
							t.events[i].CreateRevision = next
						}
					}
					turns <- t
					if c.look {
						for v.Fresh().Revision < next {
							runtime.Gosched()
						}
						v.Locks()
					}
				}
			})
		}
	}
}

func events(ops ...op) (events []protocol.Event) {
	for _, o := range ops {
		events = append(events, protocol.Event{KV: protocol.KV{Key: o.key, Value: []byte(o.value)}})
	}
	return events
}
