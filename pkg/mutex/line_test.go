package mutex_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// queue runs a test about those who wait for lock "a", one client and one waiter each, that leaves nothing.
func queue(t *testing.T, test func(t *testing.T, q *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newFake(t)
		t.Cleanup(q.nothingLeft)
		test(t, q)
	})
}

// queues runs such a test of each case.
func queues[C any](t *testing.T, cases map[string]C, test func(t *testing.T, q *fake, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) { test(t, q, c) })
		})
	}
}

// nothingLeft expects no key, and no lease that could bring one back. It runs after the clients are closed.
func (q *fake) nothingLeft() {
	q.Helper()
	keys, err := q.etcd.Get(context.Background(), mutex.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		q.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		if !strings.Contains(string(kv.Key), "/.cancelled/") && !strings.Contains(string(kv.Key), "/.history/") {
			q.Errorf("left: %s", kv.Key)
		}
	}
	leases, err := q.etcd.Leases(context.Background())
	if err != nil {
		q.Fatal(err)
	}
	for _, l := range leases.Leases {
		ttl, err := q.etcd.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
		if err == nil && ttl.GrantedTTL > 0 && ttl.GrantedTTL <= 10 && !(q.cutShort && len(ttl.Keys) == 0) {
			q.Errorf("a lease is left: %x, %d of %d s", l.ID, ttl.TTL, ttl.GrantedTTL)
		}
	}
}

// withoutTombstones counts the keys of all locks and queues.
func withoutTombstones(t testing.TB, etcd *clientv3.Client) int64 {
	t.Helper()
	return etcdtest.Count(t, etcd, mutex.DefaultPrefix) - etcdtest.Count(t, etcd, layout(t).Cancelled(""))
}

// locks is one more client, with an etcd client of its own.
func (q *fake) locks() *mutex.Client { return newClient(q, q.client()) }

// waiter is somebody who queues.
type waiter struct {
	got    chan *mutex.Lock
	err    error
	ticket metadata.Waiter
	cancel context.CancelFunc
}

// wait starts one more waiter with this client, and returns when its ticket is in etcd.
func (q *fake) wait(c *mutex.Client, opts ...mutex.Option) *waiter {
	q.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	q.Cleanup(cancel)
	w := &waiter{got: make(chan *mutex.Lock, 1), cancel: cancel}
	n := len(q.waiting())
	go func() {
		l, err := c.Lock(ctx, "a", opts...)
		w.err = err
		w.got <- l
	}()
	etcdtest.Eventually(q, "the ticket", func() bool { return len(q.waiting()) > n })
	w.ticket = q.waiting()[n]
	return w
}

// waiting returns the waiters, in order.
func (q *fake) waiting() (waiting []metadata.Waiter) {
	l := layout(q)
	r, err := q.etcd.Get(context.Background(), l.Queue("a"), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		q.Fatal(err)
	}
	for _, kv := range r.Kvs {
		t, err := protocol.Unmarshal[metadata.Ticket](kv.Value)
		if key := l.Parse(string(kv.Key)); err == nil && key.Kind == protocol.KindTicket && !t.Holding {
			waiting = append(waiting, metadata.Waiter{Ticket: t, Lock: "a", ID: key.ID, Revision: kv.CreateRevision})
		}
	}
	return waiting
}

// turn waits until w holds the lock, which must not happen before the others have released it.
func (q *fake) turn(w *waiter) *mutex.Lock {
	q.Helper()
	select {
	case l := <-w.got:
		if l == nil {
			q.Fatal(w.err)
		}
		return l
	case <-time.After(2 * time.Minute):
		q.Fatalf("no turn; waiting: %+v", q.waiting())
	}
	return nil
}

// leaseOf is the lease of a ticket.
func (q *fake) leaseOf(w *waiter) clientv3.LeaseID {
	q.Helper()
	r, err := q.etcd.Get(context.Background(), layout(q).Ticket("a", w.ticket.ID))
	if err != nil || len(r.Kvs) != 1 {
		q.Fatal("the ticket is gone", err)
	}
	return clientv3.LeaseID(r.Kvs[0].Lease)
}
