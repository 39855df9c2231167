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

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
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
		got := waits(t, locks)
		time.Sleep(time.Second)
		unlock(t, first)
		unlock(t, <-got)
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

// foreignUUID names the ticket of a client in another language.
const foreignUUID = "00000000-0000-4000-8000-000000000001"

// standIn puts a ticket and the tail of a client in another language, which does nothing by itself, with a lease that
// is never extended.
func (q *fake) standIn() {
	q.Helper()
	lease, err := q.etcd.Grant(context.Background(), 600)
	if err != nil {
		q.Fatal(err)
	}
	q.do(clientv3.OpPut(layout(q).Ticket("a", foreignUUID), "{}", clientv3.WithLease(lease.ID)),
		clientv3.OpPut(layout(q).Tail("a"), foreignUUID, clientv3.WithLease(lease.ID)))
}

// tailIs waits until the tail names this waiter's ticket, with its lease.
func (q *fake) tailIs(w *waiter) {
	q.Helper()
	etcdtest.Eventually(q, "the tail", func() bool {
		r, err := q.etcd.Get(context.Background(), layout(q).Tail("a"))
		return err == nil && len(r.Kvs) == 1 && string(r.Kvs[0].Value) == w.ticket.UUID &&
			clientv3.LeaseID(r.Kvs[0].Lease) == q.lease(layout(q).Ticket("a", w.ticket.ID))
	})
}

// kindsThatQueue are the options of a waiter, and of newcomers that would pass it where the queue does not keep them
// back.
func kindsThatQueue() map[string][2][]mutex.Option {
	return map[string][2][]mutex.Option{
		"plain":   {nil, nil},
		"writer":  {{mutex.Exclusive()}, {mutex.Shared()}},
		"permits": {{mutex.Semaphore(3), mutex.Weight(3)}, {mutex.Semaphore(3)}},
	}
}

// The newest waiter dies, and its lease takes the tail along: one of the others puts it back.
func TestDeathAtTheEndStarvesNobody(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		first := take(t, q.locks(), "a", kind[1]...)
		one := q.wait(q.locks(), kind[0]...)
		q.standIn()
		q.revoke(layout(t).Tail("a"))
		q.tailIs(one)
		refused(t, q.locks(), "a", kind[1]...)
		unlock(t, first)
		q.turns(one)
	})
}

// While etcd refuses puts, the tail cannot be restored. The ticket is deleted anyway, and a remaining waiter restores
// the tail later.
func TestGivingUpAtTheEndOfAFullEtcd(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		one := q.wait(q.locks())
		two := q.wait(q.locks())
		q.full.Store(true)
		two.cancel()
		<-two.got
		if held, ok := errors.AsType[*mutex.HeldError](two.err); !ok || held.Position != 2 ||
			held.Holder.UUID != first.UUID() {
			t.Errorf("the waiter that gave up got %v", two.err)
		}
		if w := q.waiting(); len(w) != 1 || w[0].UUID != one.ticket.UUID {
			t.Errorf("waiting: %+v", w)
		}
		time.Sleep(time.Minute)
		q.full.Store(false)
		q.tailIs(one)
		unlock(t, first)
		q.turns(one)
	})
}

// The answer to an acquisition is lost, and its repetition finds etcd full: what it took is given back all the same.
func TestAcquisitionWithTheLastSpaceIsGivenBack(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		q.loseAnswers.Store(1)
		time.AfterFunc(time.Second, func() { q.full.Store(true) })
		if _, err := q.locks().TryLock(t.Context(), "a", kind[0]...); !locktxn.NoSpace(err) {
			t.Errorf("want a full etcd, got %v", err)
		}
		etcdtest.Eventually(t, "the giving back", func() bool {
			return etcdtest.Count(t, q.etcd, mutex.DefaultPrefix) == 0
		})
		q.full.Store(false) // now it can be cancelled
	})
}
