package mutex_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
)

// fake is an etcd in memory that loses what the clients under test send or should hear.
type fake struct {
	testing.TB
	server *etcdmemory.Server
	etcd   *clientv3.Client // of somebody else, who loses nothing

	away        atomic.Bool  // requests do not arrive, and watches are silent
	deaf        atomic.Bool  // watches are silent
	loseAnswers atomic.Int64 // how many of the next transactions are committed, but not answered
	latency     atomic.Int64 // of every transaction

	mu   sync.Mutex
	sent []time.Time // transactions, as clients sent them

	// cutShort says that waiters may give up while etcd grants them a lease, whose number nobody learns then: it ends
	// by itself.
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
	time.Sleep(time.Duration(f.latency.Load()))
	r, err := t.send(context.WithoutCancel(ctx))
	if f.loseAnswers.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r, err
}

func (f *fake) sendings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sent)
}

// leases are granted unless etcd is away.
type leases struct {
	clientv3.Lease
	f *fake
}

func (l leases) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if l.f.away.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.Lease.Grant(ctx, ttl)
}

// do is a transaction of somebody else. It returns its revision.
func (f *fake) do(ops ...clientv3.Op) int64 {
	f.Helper()
	r, err := f.etcd.Txn(context.Background()).Then(ops...).Commit()
	if err != nil {
		f.Fatal(err)
	}
	return r.Header.Revision
}

func (f *fake) put(key, value string) int64 {
	f.Helper()
	return f.do(clientv3.OpPut(key, value))
}

// delete deletes all that begins with this.
func (f *fake) delete(prefix string) {
	f.Helper()
	f.do(clientv3.OpDelete(prefix, clientv3.WithPrefix()))
}
