package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestReadersShareAndAWriterIsAlone(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		one := take(t, c, "a", mutex.Shared(), mutex.Purpose("read one"))
		two := take(t, q.client(), "a", mutex.Shared())
		if one.Name() != "a#1" || two.Name() != "a#2" {
			t.Errorf("the readers are %s and %s", one.Name(), two.Name())
		}
		_, err := c.TryLock(context.Background(), "a", mutex.Exclusive())
		if held, ok := errors.AsType[*mutex.HeldError](err); !ok || len(held.Holders) != 2 ||
			held.Holder.UUID != one.UUID() {
			t.Fatalf("the writer got %v", err)
		}
		q.unlock(one)
		q.unlock(two)
		writer := take(t, c, "a", mutex.Exclusive())
		for _, o := range []mutex.Option{mutex.Shared(), mutex.Exclusive(), mutex.Semaphore(5)} {
			if _, err := c.TryLock(context.Background(), "a", o); err == nil {
				t.Error("taken beside a writer")
			}
		}
		q.unlock(writer)
	})
}

func TestWriterIsNotStarvedByAStreamOfReaders(t *testing.T) {
	t.Parallel()
	lineInABubble(t, func(t *testing.T, q *line) {
		ctx, cancel := context.WithCancel(context.Background())
		var readers sync.WaitGroup
		var reads atomic.Int64
		for range 8 { // there is always one that reads, and another that comes
			c := q.client()
			readers.Go(func() {
				for ctx.Err() == nil {
					l, err := c.Lock(context.Background(), "a", mutex.Shared())
					if err != nil {
						t.Error(err)
						return
					}
					reads.Add(1)
					time.Sleep(rand.N(20 * time.Millisecond))
					q.unlock(l)
				}
			})
		}
		c := q.client()
		for turn := range 5 {
			before := reads.Load()
			etcdtest.Eventually(t, "more readers", func() bool { return reads.Load() > before+10 })
			l, err := c.Lock(context.Background(), "a", mutex.Exclusive())
			if err != nil {
				t.Fatalf("turn %d: %v", turn, err)
			}
			q.unlock(l)
		}
		cancel()
		readers.Wait()
		h := history(t, q.etcd, "a", false)
		if h.most < 2 || h.writers != 5 {
			t.Errorf("%d readers at once, %d writers", h.most, h.writers)
		}
	})
}

func TestReadersBehindAWriterComeAfterIt(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		first := take(t, c, "a", mutex.Shared())
		writer := q.wait(c, mutex.Exclusive())
		readers := []*waiter{q.wait(c, mutex.Shared()), q.wait(c, mutex.Shared())}
		_, err := c.TryLock(context.Background(), "a", mutex.Shared())
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || held.Position != 4 ||
			!strings.HasSuffix(err.Error(), ", but others queue for it; position 4 in the queue") {
			t.Errorf("a reader that does not wait got %v", err)
		}
		q.unlock(first)
		l := q.turn(writer)
		last := q.wait(c, mutex.Exclusive())
		q.unlock(l)
		reading := []*mutex.Lock{q.turn(readers[0]), q.turn(readers[1])} // both at once
		if n := history(t, q.etcd, "a", false).kindsHeld(); fmt.Sprint(n) != "[shared shared]" {
			t.Errorf("held: %v", n)
		}
		for _, l := range reading {
			q.unlock(l)
		}
		q.unlock(q.turn(last))
	})
}

func TestFirstComeFirstServedAmongAllKinds(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		clients := []*mutex.Client{q.client(), q.client(), q.client()}
		kinds := [][]mutex.Option{
			{mutex.Semaphore(3)}, {mutex.Semaphore(3), mutex.Weight(3)}, {mutex.Exclusive()},
			{mutex.Semaphore(3), mutex.Weight(2)}, {mutex.Shared()},
		}
		first := take(t, clients[0], "a", mutex.Exclusive())
		var waiters []*waiter
		for i := range 15 {
			waiters = append(waiters, q.wait(clients[i%3], kinds[i%5]...))
		}
		q.unlock(first)
		token := first.Token()
		for i, w := range waiters {
			l := q.turn(w)
			if l.Token() <= token {
				t.Errorf("turn %d: token %d after %d", i, l.Token(), token)
			}
			token = l.Token()
			q.unlock(l)
		}
		if h := history(t, q.etcd, "a", false); h.fromQueue != 15 {
			t.Errorf("%d came from the queue", h.fromQueue)
		}
	})
}

func TestHeavyWeightIsNotStarvedByLightOnes(t *testing.T) {
	t.Parallel()
	lineInABubble(t, func(t *testing.T, q *line) {
		ctx, cancel := context.WithCancel(context.Background())
		var light sync.WaitGroup
		var taken atomic.Int64
		for range 6 {
			c := q.client()
			light.Go(func() {
				for ctx.Err() == nil {
					l, err := c.Lock(context.Background(), "a", mutex.Semaphore(4))
					if err != nil {
						t.Error(err)
						return
					}
					taken.Add(1)
					time.Sleep(rand.N(10 * time.Millisecond))
					q.unlock(l)
				}
			})
		}
		c := q.client()
		for range 5 {
			before := taken.Load()
			etcdtest.Eventually(t, "more of the light ones", func() bool { return taken.Load() > before+10 })
			l, err := c.Lock(context.Background(), "a", mutex.Semaphore(4), mutex.Weight(4))
			if err != nil {
				t.Fatal(err)
			}
			q.unlock(l)
		}
		cancel()
		light.Wait()
		if h := history(t, q.etcd, "a", false); h.most != 4 {
			t.Errorf("at most %d permits were out at once, want 4", h.most)
		}
	})
}

// Holders of all kinds come and go: some queue, some do not wait, some skip the queue, some give up, some lose their
// places. The audit checks the whole history.
func TestKindsInDisorder(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		q.cutShort = true
		var taken, refused atomic.Int64
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		for i := range 16 {
			c := q.client()
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := anyHold(ctx, c)
					_, held := errors.AsType[*mutex.HeldError](err)
					switch {
					case err == nil:
						taken.Add(1)
						time.Sleep(rand.N(3 * time.Millisecond))
						q.unlock(l)
					case held, errors.Is(err, context.DeadlineExceeded):
						refused.Add(1)
						time.Sleep(time.Millisecond)
					case ctx.Err() == nil:
						t.Errorf("client %d: %v", i, err)
					}
				}
			})
		}
		wg.Go(func() { // somebody who ends the leases of waiters
			for ctx.Err() == nil {
				if w := q.waiting(); len(w) > 0 {
					if r, err := q.etcd.Get(ctx, layout(t).Ticket("a", w[rand.N(len(w))].ID)); err == nil &&
						len(r.Kvs) == 1 {
						q.etcd.Revoke(ctx, clientv3.LeaseID(r.Kvs[0].Lease))
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		wg.Wait()
		h := history(t, q.etcd, "a", true)
		t.Logf("%d taken, %d refused, %d from the queue; %d readers, %d writers, at most %d at once", taken.Load(),
			refused.Load(), h.fromQueue, h.readers, h.writers, h.most)
		if refused.Load() == 0 || h.fromQueue == 0 || h.readers == 0 || h.writers == 0 || h.most < 3 {
			t.Error("that was no disorder")
		}
	})
}

// anyHold takes lock "a" in a random way.
func anyHold(ctx context.Context, c *mutex.Client) (*mutex.Lock, error) {
	kinds := [][]mutex.Option{
		{mutex.Semaphore(3)}, {mutex.Semaphore(3), mutex.Weight(2)}, {mutex.Semaphore(5)},
		{mutex.Semaphore(5), mutex.Weight(4)},
		{mutex.Shared()}, {mutex.Shared()}, {mutex.Exclusive()},
	}
	opts := append([]mutex.Option{mutex.BacktraceDepth(0)}, kinds[rand.N(len(kinds))]...)
	if rand.N(8) == 0 {
		opts = append(opts, mutex.WithoutQueue())
	}
	if rand.N(4) == 0 {
		return c.TryLock(ctx, "a", opts...)
	}
	patience, cancel := context.WithTimeout(ctx, []time.Duration{5 * time.Millisecond, 50 * time.Millisecond,
		2 * time.Second}[rand.N(3)])
	defer cancel()
	return c.Lock(patience, "a", opts...)
}
