package mutex_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The peers run in turns within one benchmark, so that a noisy machine is equally unkind to all of them; ratios are what counts.
const turns = 6

// BenchmarkUncontended is lock and unlock of a free lock by clients that do not meet (targets P1 and P2): ours, one put and one
// delete of a key, and etcd's own Mutex, which writes no metadata, with a shared session.
func BenchmarkUncontended(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			etcd := etcdtest.Start(b).Client(b)
			locks := newClient(b, etcd)
			session, err := concurrency.NewSession(etcd)
			if err != nil {
				b.Fatal(err)
			}
			defer session.Close()
			ctx := context.Background()

			rates := compare(b, clients, []peer{
				{"ours", func(client int) error {
					l, err := locks.Lock(ctx, fmt.Sprintf("billing/%d", client), mutex.Purpose("send the invoices of the month"))
					if err != nil {
						return err
					}
					return l.Unlock()
				}},
				{"raw", func(client int) error {
					key := fmt.Sprintf("/raw/%d", client)
					if _, err := etcd.Put(ctx, key, "x"); err != nil {
						return err
					}
					_, err := etcd.Delete(ctx, key)
					return err
				}},
				{"etcd-mutex", func(client int) error {
					m := concurrency.NewMutex(session, fmt.Sprintf("/etcd/%d", client))
					if err := m.Lock(ctx); err != nil {
						return err
					}
					return m.Unlock(ctx)
				}},
			})
			b.ReportMetric(rates["raw"]/rates["ours"], "x-time-of-raw")
			b.ReportMetric(rates["etcd-mutex"]/rates["ours"], "x-time-of-etcd-mutex")
		})
	}
}

type peer struct {
	name string
	once func(client int) error
}

// compare runs every peer b.N times in all, in turns, and returns operations per second.
func compare(b *testing.B, clients int, peers []peer) map[string]float64 {
	took := map[string]time.Duration{}
	done := map[string]int{}
	for turn := range turns {
		for i := range peers {
			p := peers[(i+turn)%len(peers)]
			n := max(b.N/turns, clients)
			began := time.Now()
			parallel(b, clients, n, p.once)
			took[p.name] += time.Since(began)
			done[p.name] += n
		}
	}
	rates := map[string]float64{}
	for name, d := range took {
		rates[name] = float64(done[name]) / d.Seconds()
		b.ReportMetric(rates[name], name+"/s")
	}
	b.ReportMetric(0, "ns/op")
	return rates
}

func parallel(b *testing.B, clients, n int, once func(client int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := once(client); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
