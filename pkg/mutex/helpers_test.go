package mutex_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// newClient returns a client that cleans up and closes when the test ends.
func newClient(t testing.TB, etcd *clientv3.Client, opts ...mutex.Options) *mutex.Client {
	t.Helper()
	o := mutex.Options{Owner: "billing", Hostname: "host-1"}
	if len(opts) > 0 {
		o = opts[0]
	}
	c, err := mutex.New(etcd, o)
	proctest.Must(t, err)
	t.Cleanup(func() { proctest.Must(t, c.Close()) })
	return c
}

// onEtcd returns a real etcd and a client, beside other tests.
func onEtcd(t *testing.T) (*clientv3.Client, *mutex.Client) {
	t.Helper()
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	return etcd, unhurried(t, etcd)
}

// take takes a lock that is released at the end of the test at the latest.
func take(t testing.TB, c *mutex.Client, name string, opts ...mutex.Option) *mutex.Lock {
	t.Helper()
	l, err := c.TryLock(context.Background(), name, opts...)
	proctest.Must(t, err)
	giveBack(t, l)
	return l
}

// refused tries to take a lock that it cannot get, and returns the HeldError.
func refused(t testing.TB, c *mutex.Client, name string, opts ...mutex.Option) *mutex.HeldError {
	t.Helper()
	_, err := c.TryLock(t.Context(), name, opts...)
	held, ok := errors.AsType[*mutex.HeldError](err)
	if !ok || !errors.Is(err, mutex.ErrHeld) {
		t.Fatalf("want a HeldError, got %v", err)
	}
	return held
}

// endHold ends a hold like an unlocker or an operator, with the lock delay of its record.
func endHold(t testing.TB, etcd *clientv3.Client, lock, ended, by, why string) {
	t.Helper()
	doc := read(t, etcd, lock)
	removal := lockrecord.Removal{Record: &doc.Record, Delay: doc.EffectiveLockDelay(0),
		Ending: lockrecord.NewEnding(&doc.Record, ended, by, why, time.Now())}
	store := lockstore.New(etcd, layout(t))
	proctest.Must(t, errors.Join(store.AutoUnlock(t.Context(), []lockrecord.Removal{removal})...))
}

type held interface {
	Context() context.Context
	Unlock() error
}

func giveBack(t testing.TB, l held) {
	t.Cleanup(func() {
		if l.Context().Err() != nil {
			return
		}
		if err := l.Unlock(); err != nil && !errors.Is(err, mutex.ErrNotHeld) {
			t.Error(err)
		}
	})
}

func takeAll(t testing.TB, c *mutex.Client, names []string, opts ...mutex.Option) *mutex.Locks {
	t.Helper()
	all, err := c.LockAll(context.Background(), names, opts...)
	proctest.Must(t, err)
	giveBack(t, all)
	return all
}

// enter reenters the hold of lock "a".
func enter(t testing.TB, c *mutex.Client, hold *mutex.Lock) *mutex.Lock {
	t.Helper()
	l, err := c.TryLock(hold.Context(), "a", mutex.Reentrant())
	proctest.Must(t, err)
	giveBack(t, l)
	return l
}

// waits has a client wait for lock "a".
func waits(t testing.TB, c *mutex.Client, opts ...mutex.Option) <-chan *mutex.Lock {
	got := make(chan *mutex.Lock, 1)
	go func() {
		l, err := c.Lock(within(t, 100*time.Hour), "a", opts...)
		if err != nil {
			t.Error(err)
		}
		giveBack(t, l)
		got <- l
	}()
	return got
}

func unlock(t testing.TB, l interface{ Unlock() error }) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

func alive(t testing.TB, l *mutex.Lock, progress ...string) {
	t.Helper()
	proctest.Must(t, l.Alive(context.Background(), progress...))
}

func wantEmpty(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	if n := etcdtest.Count(t, etcd, mutex.DefaultPrefix); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

func layout(testing.TB) protocol.Layout { return protocol.DefaultLayout() }

// read returns the record of a lock in etcd.
func read(t testing.TB, etcd *clientv3.Client, lock string) metadata.FullRecord {
	t.Helper()
	l := layout(t)
	r, err := etcd.Get(context.Background(), l.Record(lock), clientv3.WithPrefix())
	proctest.Must(t, err)
	return lockrecord.Decode(lock, locktxn.Fields(l, r))
}

// holds reports whether a transaction with these compares takes effect.
func holds(t testing.TB, etcd *clientv3.Client, guards ...clientv3.Cmp) bool {
	t.Helper()
	r, err := etcd.Txn(context.Background()).If(guards...).Then(clientv3.OpPut("/mine", "1")).Commit()
	proctest.Must(t, err)
	return r.Succeeded
}

// within returns a context with this timeout.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// txns intercepts a client's transactions.
type txns struct {
	clientv3.KV
	commit commit
}

func (k *txns) Txn(ctx context.Context) clientv3.Txn { return &heldTxn{k: k, ctx: ctx} }

type commit = func(context.Context, *heldTxn) (*clientv3.TxnResponse, error)

// onTxn replaces the transactions of a client with a function.
func onTxn(etcd *clientv3.Client, f commit) *clientv3.Client {
	etcd.KV = &txns{KV: etcd.KV, commit: f}
	return etcd
}

// heldTxn is a transaction that is held back.
type heldTxn struct {
	k                *txns
	ctx              context.Context
	cmps             []clientv3.Cmp
	thenOps, elseOps []clientv3.Op
}

func (t *heldTxn) If(c ...clientv3.Cmp) clientv3.Txn      { t.cmps = c; return t }
func (t *heldTxn) Then(o ...clientv3.Op) clientv3.Txn     { t.thenOps = o; return t }
func (t *heldTxn) Else(o ...clientv3.Op) clientv3.Txn     { t.elseOps = o; return t }
func (t *heldTxn) Commit() (*clientv3.TxnResponse, error) { return t.k.commit(t.ctx, t) }

// send sends the transaction to etcd.
func (t *heldTxn) send(ctx context.Context) (*clientv3.TxnResponse, error) {
	return t.k.KV.Txn(ctx).If(t.cmps...).Then(t.thenOps...).Else(t.elseOps...).Commit()
}

// writes reports whether the transaction would write the key.
func (t *heldTxn) writes(key string) bool {
	return slices.ContainsFunc(t.thenOps, func(op clientv3.Op) bool {
		return op.IsPut() && string(op.KeyBytes()) == key
	})
}
