package mutex_test

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// How often permits of a semaphore change hands among waiters, next to a plain lock in the same run. Run with
// -benchtime=1000x for five seconds each.
func BenchmarkPermitHandOver(b *testing.B) {
	for _, waiters := range []int{2, 10, 100, 1000} {
		for _, limit := range []int{1, 10} {
			b.Run(fmt.Sprintf("%d waiters, %d permits", waiters, limit), func(b *testing.B) {
				server := etcdtest.Start(b)
				hold := func(opts ...mutex.Option) func(etcd *clientv3.Client) func() error {
					return func(etcd *clientv3.Client) func() error {
						c := newClient(b, etcd)
						return func() error {
							l, err := c.Lock(context.Background(), "a", opts...)
							if err != nil {
								return err
							}
							return l.Unlock()
						}
					}
				}
				permits := handOvers(b, waiters, "permit", server, hold(mutex.Semaphore(limit)))
				plain := handOvers(b, waiters, "plain", server, hold())
				b.ReportMetric(permits/plain, "x-rate-of-plain-lock")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// The cost of the permits that are already taken: each acquisition reads all of them.
func BenchmarkPermitBesideOthers(b *testing.B) {
	for _, others := range []int{0, 10, 100, 1000} {
		b.Run(fmt.Sprintf("%d others", others), func(b *testing.B) {
			c := newClient(b, etcdtest.Start(b).Client(b))
			for range others {
				take(b, c, "a", mutex.Semaphore(2000))
			}
			for b.Loop() {
				if err := take(b, c, "a", mutex.Semaphore(2000)).Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
