package mutex_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	grpcmeta "google.golang.org/grpc/metadata"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// fake is an in-memory etcd that can lose requests and answers of the clients under test.
type fake struct {
	testing.TB
	server *etcdmemory.Server
	etcd   *clientv3.Client // of somebody else, who loses nothing

	away        atomic.Bool  // requests do not arrive, and watches are silent
	deaf        atomic.Bool  // watches are silent
	loseAnswers atomic.Int64 // how many of the next transactions are committed, but not answered
	latency     atomic.Int64 // of every transaction
	full        atomic.Bool  // leases and all transactions with a put are refused, as when its space is used up

	mu   sync.Mutex
	sent []time.Time // transactions, as clients sent them

	// cutShort says that waiters may give up while etcd grants them a lease. No client learns its ID; it expires.
	cutShort bool
}

func newFake(t testing.TB) *fake {
	s := etcdmemory.New()
	return &fake{TB: t, server: s, etcd: s.Connect().Client()}
}

// client is an etcd client of f.
func (f *fake) client() *clientv3.Client {
	l := f.server.Connect()
	l.Deaf = func() bool { return f.away.Load() || f.deaf.Load() }
	c := l.Client()
	c.KV = &txns{KV: c.KV, commit: f.commit}
	c.Lease = leases{c.Lease, f}
	return c
}

func (f *fake) commit(ctx context.Context, t *heldTxn) (*clientv3.TxnResponse, error) {
	f.mu.Lock()
	f.sent = append(f.sent, time.Now())
	f.mu.Unlock()
	if f.away.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.full.Load() && puts(slices.Concat(t.thenOps, t.elseOps)) {
		return nil, rpctypes.ErrNoSpace
	}
	time.Sleep(time.Duration(f.latency.Load()))
	r, err := t.send(context.WithoutCancel(ctx))
	if f.loseAnswers.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r, err
}

// puts reports whether one of the operations may put a key.
func puts(ops []clientv3.Op) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		_, thenOps, elseOps := op.Txn()
		return op.IsPut() || puts(slices.Concat(thenOps, elseOps))
	})
}

func (f *fake) sendings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sent)
}

// leases are granted unless etcd is away or full.
type leases struct {
	clientv3.Lease
	f *fake
}

func (l leases) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	l.f.led(ctx)
	if l.f.away.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l.f.full.Load() {
		return nil, rpctypes.ErrNoSpace
	}
	return l.Lease.Grant(ctx, ttl)
}

func (l leases) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	l.f.led(ctx)
	return l.Lease.Revoke(ctx, id)
}

// led expects that a member without a leader would refuse a request at once.
func (f *fake) led(ctx context.Context) {
	header, _ := grpcmeta.FromOutgoingContext(ctx)
	if header[rpctypes.MetadataRequireLeaderKey] == nil {
		f.Error("a member that is cut off from the others would keep the request")
	}
}

// do commits another client's transaction and returns its revision.
func (f *fake) do(ops ...clientv3.Op) int64 {
	f.Helper()
	r, err := f.etcd.Txn(context.Background()).Then(ops...).Commit()
	proctest.Must(f, err)
	return r.Header.Revision
}

func (f *fake) put(key, value string) int64 {
	f.Helper()
	return f.do(clientv3.OpPut(key, value))
}

// delete deletes all keys with this prefix.
func (f *fake) delete(prefix string) {
	f.Helper()
	f.do(clientv3.OpDelete(prefix, clientv3.WithPrefix()))
}

// queue runs a test with waiters for lock "a", one client each, and expects that it leaves nothing.
func queue(t *testing.T, test func(t *testing.T, q *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newFake(t)
		t.Cleanup(q.nothingLeft)
		test(t, q)
	})
}

// queues runs such a test for each case.
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
	proctest.Must(q, err)
	for _, kv := range keys.Kvs {
		if !strings.Contains(string(kv.Key), "/.cancelled/") && !strings.Contains(string(kv.Key), "/.history/") {
			q.Errorf("left: %s", kv.Key)
		}
	}
	leases, err := q.etcd.Leases(context.Background())
	proctest.Must(q, err)
	for _, l := range leases.Leases {
		ttl, err := q.etcd.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
		if err == nil && ttl.GrantedTTL > 0 && ttl.GrantedTTL <= 10 && !(q.cutShort && len(ttl.Keys) == 0) {
			q.Errorf("a lease is left: %x, %d of %d s", l.ID, ttl.TTL, ttl.GrantedTTL)
		}
	}
}

// locks returns another client, with its own etcd client.
func (q *fake) locks() *mutex.Client { return newClient(q, q.client()) }

// waiter is a client in the queue.
type waiter struct {
	got    chan *mutex.Lock
	err    error
	ticket metadata.Waiter
	cancel context.CancelFunc
}

// wait starts another waiter with this client, and returns once its ticket is in etcd.
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
	proctest.Must(q, err)
	for _, kv := range r.Kvs {
		t, err := protocol.Unmarshal[metadata.Ticket](kv.Value)
		if key := l.Parse(string(kv.Key)); err == nil && key.Kind == protocol.KindTicket && !t.Holding {
			waiting = append(waiting, metadata.Waiter{Ticket: t, Name: "a", ID: key.ID, Revision: kv.CreateRevision})
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

// turns expects the waiters to hold the lock in this order, with increasing tokens.
func (q *fake) turns(waiters ...*waiter) {
	q.Helper()
	last := int64(0)
	for i, w := range waiters {
		l := q.turn(w)
		if l.Token() <= last {
			q.Errorf("turn %d: token %d after %d", i, l.Token(), last)
		}
		last = l.Token()
		unlock(q, l)
	}
}

// lease returns the lease of a key.
func (q *fake) lease(key string) clientv3.LeaseID {
	q.Helper()
	r, err := q.etcd.Get(context.Background(), key)
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease == 0 {
		q.Fatalf("no %s with a lease: %v, %v", key, r, err)
	}
	return clientv3.LeaseID(r.Kvs[0].Lease)
}

// life returns the granted time to live of a key's lease.
func (q *fake) life(key string) time.Duration {
	q.Helper()
	lease, err := q.etcd.TimeToLive(context.Background(), q.lease(key))
	proctest.Must(q, err)
	return time.Duration(lease.GrantedTTL) * time.Second
}

// revoke ends the lease of a key.
func (q *fake) revoke(key string) {
	q.Helper()
	_, err := q.etcd.Revoke(context.Background(), q.lease(key))
	proctest.Must(q, err)
}
