package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// largest is the size of etcd's largest answer, and the number of answers.
type largest struct{ bytes, answers atomic.Int64 }

func (l *largest) client(f *fake) *clientv3.Client {
	c := f.client()
	c.KV = &txns{KV: c.KV, commit: func(ctx context.Context, t *heldTxn) (*clientv3.TxnResponse, error) {
		r, err := t.send(ctx)
		if err == nil {
			l.answers.Add(1)
			size := int64(proto.Size((*pb.TxnResponse)(r)))
			for was := l.bytes.Load(); size > was && !l.bytes.CompareAndSwap(was, size); was = l.bytes.Load() {
			}
		}
		return r, err
	}}
	return c
}

func ahead(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// A waiter that reports its position reads it at most once a second, and reads no more when the queue is longer.
func TestIdleWaitsAskLittle(t *testing.T) {
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			sizes := map[int]int64{}
			for _, n := range []int{20, 400} {
				bubble(t, func(t *testing.T, f *fake, other *mutex.Client) {
					var all largest
					first := take(t, other, "a", append(kind[0], mutex.BacktraceDepth(40))...)
					for i := range n {
						f.put(layout(t).Ticket("a", ahead(i)), "{}")
						f.put(layout(t).Tail("a"), ahead(i))
					}
					c := newClient(t, all.client(f))
					ctx, cancel := context.WithCancel(context.Background())
					told := make(chan mutex.Waiting, 10)
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						_, _ = c.Lock(ctx, "a", append(kind[0], mutex.OnWait(func(w mutex.Waiting) { told <- w }))...)
					}()
					if w := <-told; w.Position != n+1 || w.Holder.UUID != first.UUID() {
						t.Errorf("told %d of %d, holder %s", w.Position, n+1, w.Holder.UUID)
					}
					time.Sleep(time.Second) // the first looks are over
					all.bytes.Store(0)
					all.answers.Store(0)
					time.Sleep(time.Minute)
					if n := all.answers.Load(); n > 72 { // and a recheck every five seconds
						t.Errorf("%d requests in a minute", n)
					}
					sizes[n] = all.bytes.Load()
					cancel()
					<-ended
					unlock(t, first)
				})
			}
			if sizes[400] > sizes[20]+20 || sizes[20] > 1000 { // revisions are longer numbers with time
				t.Errorf("the largest answers have %d bytes behind 20 and %d behind 400", sizes[20], sizes[400])
			}
		})
	}
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
		ctx, cancel := context.WithCancel(context.Background())
		var place atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = locks.Lock(ctx, "a", mutex.OnWait(func(w mutex.Waiting) { place.Store(int64(w.Position)) }))
		}()
		gone := func(keys ...string) {
			for _, key := range keys {
				f.do(clientv3.OpDelete(key))
			}
		}
		is := func(want int64, within time.Duration) {
			t.Helper()
			time.Sleep(within)
			if n := place.Load(); n != want {
				t.Errorf("place %d, want %d", n, want)
			}
		}
		is(61, time.Second)
		gone(layout(t).Ticket("a", ahead(0)), layout(t).Ticket("a", ahead(1))) // the next ones
		is(59, 2*time.Second)
		gone(layout(t).Ticket("a", ahead(40))) // far ahead: noticed when it is asked for
		is(58, 30*time.Second)
		for i := range 31 { // turns, as quick as nobody looks: the last of them holds the lock
			gone(layout(t).Ticket("a", ahead(i)))
		}
		gone(layout(t).Field("a", metadata.FieldUUID))
		f.put(layout(t).Field("a", metadata.FieldUUID), ahead(31))
		is(28, 2*time.Second)
		cancel()
		<-ended
	})
}

// countReads counts the transactions that read what begins at this key.
func countReads(etcd *clientv3.Client, key string) *atomic.Int64 {
	var n atomic.Int64
	reads := func(op clientv3.Op) bool { return op.IsGet() && string(op.KeyBytes()) == key }
	etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, t *heldTxn) (*clientv3.TxnResponse, error) {
		r, err := t.send(ctx)
		if err == nil && r.Succeeded && slices.ContainsFunc(t.thenOps, reads) {
			n.Add(1)
		}
		return r, err
	}}
	return &n
}

// However many waiters of a client report their positions, they read the queue together.
func TestReportersReadTheQueueTogether(t *testing.T) {
	const waiters = 200
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				first := take(t, q.locks(), "a", kind[0]...)
				etcd := q.client()
				reads := countReads(etcd, layout(t).Queue("a")+"/")
				c := newClient(t, etcd)
				ctx, cancel := context.WithCancel(context.Background())
				var mu sync.Mutex
				var all sync.WaitGroup
				told := map[int]int{} // how many were told each position first
				for range waiters {
					all.Go(func() {
						var once sync.Once
						_, _ = c.Lock(ctx, "a", append(kind[0], mutex.OnWait(func(w mutex.Waiting) {
							once.Do(func() {
								mu.Lock()
								defer mu.Unlock()
								told[w.Position]++
								if w.Holder.UUID != first.UUID() {
									t.Errorf("position %d is told of the holder %q", w.Position, w.Holder.UUID)
								}
							})
						}))...)
					})
				}
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
				cancel()
				all.Wait()
				unlock(t, first)
			})
		})
	}
}

// However many waiters of a client give up at once, they leave by few requests, each is told its position, and whoever
// waits before and behind them keeps its own.
func TestManyGiveUpTogether(t *testing.T) {
	const waiters = 200
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				first := take(t, q.locks(), "a", kind[0]...)
				before := q.wait(q.locks(), kind[0]...)
				etcd := q.client()
				var requests atomic.Int64
				commit := func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
					requests.Add(1)
					time.Sleep(10 * time.Millisecond)
					return txn.send(ctx)
				}
				etcd.KV = &txns{KV: etcd.KV, commit: commit}
				c := newClient(t, etcd)
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, waiters)
				for range waiters {
					go func() { _, err := c.Lock(ctx, "a", kind[0]...); ended <- err }()
				}
				time.Sleep(time.Second)
				behind := q.wait(q.locks(), kind[0]...)
				requests.Store(0)
				cancel()
				for range waiters {
					held, ok := errors.AsType[*mutex.HeldError](<-ended)
					if !ok || held.Position < 2 || held.Position > waiters+2 || held.Holder.UUID != first.UUID() {
						t.Errorf("a wait ended with %+v", held)
					}
				}
				if n := requests.Load(); n > 10 {
					t.Errorf("%d requests of %d that gave up", n, waiters)
				}
				if n := len(q.waiting()); n != 2 {
					t.Errorf("%d wait", n)
				}
				time.Sleep(time.Minute)
				unlock(t, first)
				unlock(t, q.turn(before))
				unlock(t, q.turn(behind))
			})
		})
	}
}

// In a queue of more than a hundred, the position in an error is an estimate, which counts the others only: it is exact
// where nobody is behind.
func TestPositionInALongQueueIsEstimated(t *testing.T) {
	for name, test := range map[string]struct{ ahead, behind, least, most int }{
		"all ahead":              {150, 0, 151, 151},
		"100 ahead, 300 behind":  {100, 300, 20, 250},
		"all but some are ahead": {200, 3, 150, 204},
	} {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				put := func(key, value string) {
					if _, err := q.etcd.Put(t.Context(), key, value); err != nil {
						t.Fatal(err)
					}
				}
				join := func(n int) {
					for range n {
						id := uuid.NewString()
						put(layout(t).Ticket("a", id), "{}")
						put(layout(t).Tail("a"), id)
					}
				}
				first := take(t, q.locks(), "a")
				join(test.ahead)
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error)
				c := q.locks()
				go func() { _, err := c.Lock(ctx, "a"); ended <- err }()
				synctest.Wait()
				join(test.behind)
				cancel()
				held, _ := errors.AsType[*mutex.HeldError](<-ended)
				if held == nil || held.Position < test.least || held.Position > test.most {
					t.Errorf("it is told: %v", held)
				}
				unlock(t, first)
				q.delete(layout(t).Queue("a"))
			})
		})
	}
}
