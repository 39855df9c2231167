package mutex_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// line is a queue before lock "a" of an etcd, one client and one waiter each.
type line struct {
	testing.TB
	etcd *clientv3.Client

	connect func(testing.TB) *clientv3.Client // with etcd, until the end of the test

	// cutShort says that waiters may give up while etcd grants them a lease, whose number nobody learns then: it ends
	// by itself.
	cutShort bool
}

// lineInABubble runs a test whose outcome depends on time, or on nothing happening: in a bubble, time passes only when
// nobody has anything else to do.
func lineInABubble(t *testing.T, test func(t *testing.T, q *line)) {
	synctest.Test(t, func(t *testing.T) {
		memory := etcdmemory.New()
		connect := func(t testing.TB) *clientv3.Client {
			c := memory.Connect().Client()
			t.Cleanup(func() { c.Close() })
			return c
		}
		q := &line{TB: t, etcd: connect(t), connect: connect}
		t.Cleanup(q.nothingLeft)
		test(t, q)
	})
}

// nothingLeft expects no key, and no lease that could bring one back. It runs after the clients are closed.
func (q *line) nothingLeft() {
	q.Helper()
	etcd := q.connect(q.TB)
	keys, err := etcd.Get(context.Background(), mutex.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		q.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		if !strings.Contains(string(kv.Key), "/.cancelled/") && !strings.Contains(string(kv.Key), "/.history/") {
			q.Errorf("left: %s", kv.Key)
		}
	}
	leases, err := etcd.Leases(context.Background())
	if err != nil {
		q.Fatal(err)
	}
	for _, l := range leases.Leases {
		ttl, err := etcd.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
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

// client is one more client, with an etcd client of its own.
func (q *line) client() *mutex.Client { return newClient(q, q.connect(q)) }

// waiter is somebody who queues.
type waiter struct {
	got    chan *mutex.Lock
	err    error
	ticket metadata.Waiter
	cancel context.CancelFunc
}

// wait starts one more waiter with this client, and returns when its ticket is in etcd.
func (q *line) wait(c *mutex.Client, opts ...mutex.Option) *waiter {
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
func (q *line) waiting() (waiting []metadata.Waiter) {
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
func (q *line) turn(w *waiter) *mutex.Lock {
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

func (q *line) delete(key string) {
	q.Helper()
	if _, err := q.etcd.Delete(context.Background(), key, clientv3.WithPrefix()); err != nil {
		q.Fatal(err)
	}
}

// leaseOf is the lease of a ticket.
func (q *line) leaseOf(w *waiter) clientv3.LeaseID {
	q.Helper()
	r, err := q.etcd.Get(context.Background(), layout(q).Ticket("a", w.ticket.ID))
	if err != nil || len(r.Kvs) != 1 {
		q.Fatal("the ticket is gone", err)
	}
	return clientv3.LeaseID(r.Kvs[0].Lease)
}
