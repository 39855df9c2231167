package lockview_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
				v := run(b, src, lockview.Options{})
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

// synthetic is a source of n held locks that it generates on reading, and that never change.
func synthetic(b *testing.B, n int, p metadata.Process) lockview.Source {
	template := lock(b, "x", uuid(0), func(d *metadata.Draft) { d.Process = p })
	start := p.Start
	return lockview.Source{
		List: func(_ context.Context, each func(protocol.KV)) (int64, error) {
			for i := range n {
				for _, o := range template {
					field := layout.Parse(o.key).ID
					kv := protocol.KV{Key: layout.Field(fmt.Sprintf("billing/invoice/%06d", i), field),
						Value: []byte(o.value), CreateRevision: int64(i + 1), ModRevision: int64(i + 1)}
					if field == metadata.FieldUUID {
						kv.Value = []byte(uuid(i))
					}
					if start != 0 && field == metadata.FieldMetadata { // ten locks a process
						kv.Value = []byte(strings.Replace(o.value, fmt.Sprint(start), fmt.Sprint(start+int64(i)/10), 1))
					}
					each(kv)
				}
			}
			return int64(n), nil
		},
		Watch: func(ctx context.Context, _ int64, _ func(int64, []protocol.Event)) error {
			<-ctx.Done()
			return ctx.Err()
		},
	}
}
