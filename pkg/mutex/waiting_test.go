package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func ahead(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// A waiter that reports its position reads it at most once a second, and reads no more when the queue is longer.
func TestIdleWaitsAskLittle(t *testing.T) {
	sizes := map[string]int64{}
	for _, n := range []int{20, 400} {
		queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
			first := take(t, q.locks(), "a", append(kind[0], mutex.BacktraceDepth(40))...)
			for i := range n {
				q.put(layout(t).Ticket("a", ahead(i)), "{}")
				q.put(layout(t).Tail("a"), ahead(i))
			}
			var largest atomic.Int64
			measured := func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
				r, err := txn.send(ctx)
				if err == nil {
					largest.Store(max(largest.Load(), int64(proto.Size((*pb.TxnResponse)(r)))))
				}
				return r, err
			}
			told := make(chan mutex.Waiting, 10)
			giveUp, _ := queueUp(newClient(t, onTxn(q.client(), measured)), 1,
				append(kind[0], mutex.OnWait(func(w mutex.Waiting) { told <- w }))...)
			if w := <-told; w.Position != n+1 || w.Holder.UUID != first.UUID() {
				t.Errorf("told %d of %d, holder %s", w.Position, n+1, w.Holder.UUID)
			}
			time.Sleep(time.Second) // the first looks are over
			largest.Store(0)
			before := q.sendings()
			time.Sleep(time.Minute)
			if n := q.sendings() - before; n > 72 { // and a recheck every five seconds
				t.Errorf("%d requests in a minute", n)
			}
			size, name := largest.Load(), t.Name()[strings.LastIndex(t.Name(), "/"):]
			if before, ok := sizes[name]; size > 1000 && !ok || size > before+20 && ok { // revisions grow with time
				t.Errorf("the largest answer has %d bytes behind %d, and %d behind fewer", size, n, before)
			}
			sizes[name] = size
			giveUp()
			q.delete(layout(t).Queue("a"))
		})
	}
}

// queueUp has a client wait so many times for lock "a". It returns how all give up, and where each wait ends.
func queueUp(c *mutex.Client, waiters int, opts ...mutex.Option) (giveUp func(), ended chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, waiters)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() { _, err := c.Lock(ctx, "a", opts...); ended <- err })
	}
	return func() { cancel(); all.Wait() }, ended
}

// Whatever happens ahead of it, the waiter ends up knowing its position: others give up in the middle or at the front,
// or take their turn.
func TestPlaceIsKnownAfterGivingUpsAhead(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.put(layout(t).Field("a", metadata.FieldUUID), "x")
		for i := range 60 {
			f.put(layout(t).Ticket("a", ahead(i)), "{}")
			f.put(layout(t).Tail("a"), ahead(i))
		}
		var place atomic.Int64
		giveUp, _ := queueUp(locks, 1, mutex.OnWait(func(w mutex.Waiting) { place.Store(int64(w.Position)) }))
		gone := func(i int) { f.delete(layout(t).Ticket("a", ahead(i))) }
		is := func(want int64, within time.Duration) {
			t.Helper()
			time.Sleep(within)
			if n := place.Load(); n != want {
				t.Errorf("place %d, want %d", n, want)
			}
		}
		is(61, time.Second)
		gone(0) // the next ones
		gone(1)
		is(59, 2*time.Second)
		gone(40) // far ahead: noticed when it is asked for
		is(58, 30*time.Second)
		for i := range 31 { // turns, as quick as nobody looks: the last of them holds the lock
			gone(i)
		}
		f.delete(layout(t).Field("a", metadata.FieldUUID))
		f.put(layout(t).Field("a", metadata.FieldUUID), ahead(31))
		is(28, 2*time.Second)
		giveUp()
	})
}

// However many waiters of a client report their positions, they read the queue together.
func TestReportersReadTheQueueTogether(t *testing.T) {
	const waiters = 200
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		first := take(t, q.locks(), "a", kind[0]...)
		var reads atomic.Int64
		ofQueue := func(op clientv3.Op) bool {
			return op.IsGet() && string(op.KeyBytes()) == layout(t).Queue("a")+"/"
		}
		c := newClient(t, onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if err == nil && r.Succeeded && slices.ContainsFunc(txn.thenOps, ofQueue) {
				reads.Add(1)
			}
			return r, err
		}))
		var mu sync.Mutex
		told := map[int]int{} // how often each position
		giveUp, _ := queueUp(c, waiters, append(kind[0], mutex.OnWait(func(w mutex.Waiting) {
			mu.Lock()
			defer mu.Unlock()
			told[w.Position]++
			if w.Holder.UUID != first.UUID() {
				t.Errorf("position %d is told of the holder %q", w.Position, w.Holder.UUID)
			}
		}))...)
		time.Sleep(2 * time.Second)
		mu.Lock()
		for position := range waiters {
			if told[position+1] != 1 {
				t.Errorf("%d were told that they are number %d", told[position+1], position+1)
			}
		}
		mu.Unlock()
		if n := reads.Load(); n < 1 || n > 10 {
			t.Errorf("%d waiters read the queue %d times", waiters, n)
		}
		giveUp()
	})
}

// However many waiters of a client give up at once, they leave by few requests, each is told its position, and whoever
// waits before and behind them keeps its own.
func TestManyGiveUpTogether(t *testing.T) {
	const waiters = 200
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		first := take(t, q.locks(), "a", kind[0]...)
		before := q.wait(q.locks(), kind[0]...)
		q.latency.Store(int64(10 * time.Millisecond))
		giveUp, ended := queueUp(q.locks(), waiters, kind[0]...)
		time.Sleep(time.Second)
		behind := q.wait(q.locks(), kind[0]...)
		began := q.sendings()
		giveUp()
		if n := q.sendings() - began; n > 10 {
			t.Errorf("%d requests of %d that gave up", n, waiters)
		}
		for range waiters {
			held, ok := errors.AsType[*mutex.HeldError](<-ended)
			if !ok || held.Position < 2 || held.Position > waiters+2 || held.Holder.UUID != first.UUID() {
				t.Errorf("a wait ended with %+v", held)
			}
		}
		if n := len(q.waiting()); n != 2 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Minute)
		unlock(t, first)
		q.turns(before, behind)
	})
}

// In a queue of more than a hundred, the position in an error is an estimate, which counts the others only: it is exact
// where nobody is behind.
func TestPositionInALongQueueIsEstimated(t *testing.T) {
	type places struct{ ahead, behind, least, most int }
	queues(t, map[string]places{
		"all ahead":              {150, 0, 151, 151},
		"100 ahead, 300 behind":  {100, 300, 20, 250},
		"all but some are ahead": {200, 3, 150, 204},
	}, func(t *testing.T, q *fake, c places) {
		join := func(n int) {
			for range n {
				id := uuid.NewString()
				q.put(layout(t).Ticket("a", id), "{}")
				q.put(layout(t).Tail("a"), id)
			}
		}
		take(t, q.locks(), "a")
		join(c.ahead)
		giveUp, ended := queueUp(q.locks(), 1)
		synctest.Wait()
		join(c.behind)
		giveUp()
		held, _ := errors.AsType[*mutex.HeldError](<-ended)
		if held == nil || held.Position < c.least || held.Position > c.most {
			t.Errorf("it is told: %v", held)
		}
		q.delete(layout(t).Queue("a"))
	})
}
