package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// waitAt turns this test binary into a process that waits for lock "a" in the etcd at this address until it is killed.
const waitAt = "MUTEX_TEST_WAIT_AT"

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(waitAt); endpoint != "" {
		etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, MaxUnaryRetries: 1,
			Logger: zap.NewNop()})
		if err == nil {
			var locks *mutex.Client
			if locks, err = mutex.New(etcd, mutex.Options{Owner: "another process"}); err == nil {
				_, err = locks.Lock(context.Background(), "a")
			}
		}
		fmt.Fprintln(os.Stderr, err)
		io.Copy(io.Discard, os.Stdin) // until the parent ends
		os.Exit(1)
	}
	etcdtest.Main(m)
}

func TestKilledWaiterCostsItsLeaseAtMost(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	c := q.client()
	first := take(t, c, "a")
	one := q.wait(c)
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), waitAt+"="+q.server.Endpoint())
	if _, err := process.StdinPipe(); err != nil { // ends with this process
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	etcdtest.Eventually(t, "the other process in the queue", func() bool { return len(q.waiting()) == 2 })
	if w := q.waiting()[1]; w.Owner != "another process" || w.PID != int64(process.Process.Pid) {
		t.Errorf("the second one is %+v", w)
	}
	two := q.wait(c)
	three := q.wait(c)
	lease, err := q.etcd.TimeToLive(context.Background(), q.leaseOf(&waiter{ticket: q.waiting()[1]}))
	if err != nil || lease.GrantedTTL != 10 {
		t.Errorf("the ticket outlives its process by %+v, want 10 s: %v", lease, err)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	process.Wait()
	q.unlock(first)
	q.unlock(q.turn(one))
	q.unlock(q.turn(two))
	q.unlock(q.turn(three))
}

// Waiters come, give up, lose their places and wait again, in random order. Never do two hold the lock, and in the end
// nothing is left.
func TestQueueInDisorder(t *testing.T) {
	q := newLine(t)
	q.cutShort = true
	// of each waiter, by lot
	patiences := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 4 * time.Second, 5 * time.Second}
	var inside, turns, gaveUp atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for i := range 24 {
		c := q.client()
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
				inside.Add(-1)
				q.unlock(l)
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
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := f.leases(); n != 1 {
			t.Errorf("%d leases after the wait, want one for the next", n)
		}
		time.Sleep(31 * time.Second)
		if n := f.leases(); n != 0 {
			t.Errorf("%d leases half a minute later", n)
		}
	})
}
