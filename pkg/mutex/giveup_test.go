package mutex_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// However many waiters of a client give up at once, they leave by few requests, each is told its position, and whoever
// waits before and behind them keeps its own.
func TestManyGiveUpTogether(t *testing.T) {
	const waiters = 200
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			lineInABubble(t, func(t *testing.T, q *line) {
				first := take(t, q.client(), "a", kind[0]...)
				before := q.wait(q.client(), kind[0]...)
				etcd := q.connect(t)
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
				behind := q.wait(q.client(), kind[0]...)
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
			lineInABubble(t, func(t *testing.T, q *line) {
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
				first := take(t, q.client(), "a")
				join(test.ahead)
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error)
				c := q.client()
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
