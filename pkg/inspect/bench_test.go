package inspect_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// BenchmarkList lists 100,000 locks with backtraces of 1 KiB, and reports how much memory the loop needs at a time.
// etcd is in the same process, and counts, too.
func BenchmarkList(b *testing.B) {
	const locks = 100_000
	server := etcdtest.Start(b)
	etcd := server.Client(b)
	write(b, etcd, locks)
	i := inspector(b, etcd)
	for b.Loop() {
		began := time.Now()
		var first time.Duration
		n := 0
		var half time.Duration
		most := uint64(0)
		var memory runtime.MemStats
		for _, err := range i.List(b.Context(), "") {
			if err != nil {
				b.Fatal(err)
			}
			if n++; n == 1 {
				first = time.Since(began)
			}
			if n == locks/2 {
				half = time.Since(began)
				runtime.GC()
				runtime.ReadMemStats(&memory)
				most = memory.HeapAlloc
				began = time.Now()
			}
		}
		if n != locks {
			b.Fatalf("%d locks were listed", n)
		}
		took := half + time.Since(began)
		runtime.GC()
		runtime.ReadMemStats(&memory)
		b.ReportMetric(locks/took.Seconds(), "locks/s")
		b.ReportMetric(float64(first.Milliseconds()), "ms-to-first")
		b.ReportMetric((float64(most)-float64(memory.HeapAlloc))/(1<<20), "MiB-halfway")
	}
}

// write writes the records of n locks.
func write(b *testing.B, etcd *clientv3.Client, n int) {
	b.Helper()
	layout, err := protocol.NewLayout(mutex.DefaultPrefix)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	var puts []clientv3.Op
	for i := range n {
		fields, err := metadata.Draft{
			UUID:   fmt.Sprintf("%08d-0000-4000-8000-000000000000", i),
			Holder: metadata.Holder{Owner: "billing", Hostname: "host-1", PID: 1, Purpose: "invoices"},
			Client: "bench", LockedAt: now, AlertAt: now.Add(time.Hour),
			AutoUnlockAt: now.Add(2 * time.Hour), Backtrace: strings.Repeat("main.main main.go:17\n", 50),
		}.Fields()
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range fields {
			puts = append(puts, clientv3.OpPut(layout.Field(fmt.Sprintf("lock/%06d", i), f.Name), f.Value))
		}
		if len(puts) < 120 && i < n-1 {
			continue
		}
		if _, err := etcd.Txn(b.Context()).Then(puts...).Commit(); err != nil {
			b.Fatal(err)
		}
		puts = puts[:0]
	}
}
