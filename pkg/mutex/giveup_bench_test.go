package mutex_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// BenchmarkGiveUps measures what it costs when so many waiters for one lock give up at once, all of one client or each
// of a client of its own: requests and bytes for each, until all calls have returned and the clients are closed, and
// how long both take. Closing includes the requests that a call left to the background. Only figures of the last time
// are reported.
func BenchmarkGiveUps(b *testing.B) {
	for _, waiters := range []int{10, 100, 1000} {
		for name, clients := range map[string]int{"one client": 1, "a client each": waiters} {
			b.Run(fmt.Sprintf("%d waiters, %s", waiters, name), func(b *testing.B) {
				q := newLine(b)
				q.cutShort = true
				for b.Loop() {
					giveUps(b, q, waiters, clients)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// giveUps has waiters give up once.
func giveUps(b *testing.B, q *line, waiters, clients int) {
	var n traffic
	var connected []*clientv3.Client
	var locks []*mutex.Client
	for i := range clients {
		if i < connections {
			etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{q.server.Endpoint()},
				DialOptions: []grpc.DialOption{grpc.WithStatsHandler(&n)}})
			if err != nil {
				b.Fatal(err)
			}
			defer etcd.Close()
			connected = append(connected, etcd)
		}
		c, err := mutex.New(connected[i%connections], mutex.Options{RequestTimeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		locks = append(locks, c)
	}
	first := take(b, q.client(), "a")
	ctx, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	for i := range waiters {
		waits.Go(func() { _, _ = locks[i%clients].Lock(ctx, "a") })
	}
	etcdtest.Eventually(b, "the queue", func() bool { return len(q.waiting()) == waiters })
	time.Sleep(2 * time.Second) // the looks after joining are over
	n.requests.Store(0)
	n.revocations.Store(0)
	n.bytes.Store(0)
	began := time.Now()
	cpu := cpuTime(b)
	cancel()
	waits.Wait()
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms")
	var closed sync.WaitGroup
	for _, c := range locks {
		closed.Go(func() {
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	closed.Wait()
	each := func(x float64, unit string) { b.ReportMetric(x/float64(waiters), unit+"/wait") }
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-with-close")
	each(float64((cpuTime(b) - cpu).Microseconds()), "cpu-µs")
	each(float64(n.requests.Load()), "requests")
	each(float64(n.revocations.Load()), "revocations")
	each(float64(n.bytes.Load())/1000, "KB")
	q.unlock(first)
}
