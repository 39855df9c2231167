package mutex_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Waiters come, give up, lose their places and wait again, in random order. Never do two hold the lock, and in the end
// nothing is left.
func TestQueueInDisorder(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		q.cutShort = true
		// of each waiter, by lot
		patiences := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 4 * time.Second, 5 * time.Second}
		var inside, turns, gaveUp atomic.Int64
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for i := range 24 {
			c := q.locks()
			wg.Go(func() {
				for ctx.Err() == nil {
					patience, cancel := context.WithTimeout(ctx, patiences[rand.N(len(patiences))])
					l, err := c.Lock(patience, "a")
					cancel()
					if _, held := errors.AsType[*mutex.HeldError](err); err != nil && !held &&
						!errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("waiter %d: %v", i, err)
					}
					if err != nil {
						gaveUp.Add(1)
						continue
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					turns.Add(1)
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					unlock(t, l)
				}
			})
		}
		wg.Go(func() { // somebody who ends the leases of waiters
			for ctx.Err() == nil {
				if w := q.waiting(); len(w) > 0 {
					key := layout(t).Ticket("a", w[rand.N(len(w))].ID)
					if r, err := q.etcd.Get(ctx, key); err == nil && len(r.Kvs) == 1 {
						q.etcd.Revoke(ctx, clientv3.LeaseID(r.Kvs[0].Lease))
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		wg.Wait()
		if turns.Load() == 0 || gaveUp.Load() == 0 {
			t.Errorf("%d turns, %d gave up", turns.Load(), gaveUp.Load())
		}
	})
}

func TestIdleLeasesAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		first := take(t, locks, "a")
		done := make(chan error)
		go func() {
			l, err := locks.Lock(context.Background(), "a")
			if err == nil {
				err = l.Unlock()
			}
			done <- err
		}()
		time.Sleep(time.Second)
		unlock(t, first)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := leased(t, f); n != 1 {
			t.Errorf("%d leases after the wait, want one for the next", n)
		}
		time.Sleep(31 * time.Second)
		if n := leased(t, f); n != 0 {
			t.Errorf("%d leases half a minute later", n)
		}
	})
}

// leased counts the leases.
func leased(t *testing.T, f *fake) int {
	t.Helper()
	all, err := f.etcd.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Leases)
}
