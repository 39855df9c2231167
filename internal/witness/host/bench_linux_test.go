package host

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// BenchmarkThousandHolders measures a witness of a thousand processes: memory per process, and the time until the ends
// of all of them are stated.
func BenchmarkThousandHolders(b *testing.B) {
	const n = 1000
	w := newWorld(b)
	for b.Loop() {
		b.StopTimer()
		children := make([]*exec.Cmd, n)
		for i := range children {
			children[i] = exec.Command("sleep", "600")
			if err := children[i].Start(); err != nil {
				b.Fatal(err)
			}
		}
		one := w.witness()
		w.eventually("a view", func() bool { return one.Synced() == nil })
		before := heap()
		for i, c := range children {
			w.hold(fmt.Sprintf("lock %d", i), c.Process.Pid, w.identity(c.Process.Pid))
		}
		w.watches(one, n)
		b.ReportMetric(float64(heap()-before)/n, "bytes/holder")
		b.StartTimer()
		var all sync.WaitGroup
		began := time.Now()
		for _, c := range children {
			all.Go(func() {
				_ = c.Process.Kill()
				_ = c.Wait()
			})
		}
		w.eventually("all statements", func() bool {
			resp, err := w.etcd.Get(b.Context(), w.layout.Deaths(), clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && resp.Count == n
		})
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-to-state-all")
		b.StopTimer()
		all.Wait()
		one.stop()
		if _, err := w.etcd.Delete(b.Context(), w.layout.Prefix(), clientv3.WithPrefix()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkSearch measures a search of all the machine's processes for holders in other namespaces.
func BenchmarkSearch(b *testing.B) {
	w := newWorld(b)
	children := 500
	for range children {
		w.sleeper()
	}
	one := w.witness()
	for b.Loop() {
		if _, _, err := one.processes.search([]holder{{namespace: 4, pid: 1, start: 1}}); err != nil {
			b.Fatal(err)
		}
	}
}
