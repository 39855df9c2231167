package lockview_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func source(s *lockstore.Store) lockview.Source {
	return lockview.Source{List: s.ListKeys, Watch: s.Watch, Ending: s.ReadEnding}
}

// same waits until the view shows the same as a freshly started one.
func same(t testing.TB, v *lockview.View, s *lockstore.Store) {
	t.Helper()
	fresh := lockview.New(layout, source(s), lockview.Options{})
	defer proctest.Go(t, fresh.Run).Stop(t)
	etcdtest.Eventually(t, "a list", func() bool { return fresh.Fresh().Synced })
	etcdtest.Eventually(t, "the newest revision",
		func() bool { f := v.Fresh(); return f.Synced && f.Revision >= fresh.Fresh().Revision })
	differ(t, "the view and etcd", show(v), show(fresh))
}

// Each revision changes two locks, each with keys that belong together. Polling readers must never see half of one.
func TestReadersSeeWholeRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	v := run(t, w.source(), lockview.Options{RelistEvery: 5 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				locks := v.Locks()
				if len(locks) != 0 && len(locks) != 2 {
					t.Errorf("%d locks, want both or none", len(locks))
					return
				}
				for _, r := range locks {
					whole := r.Owner == r.UUID && r.Problems == nil && (r.Alive == nil || r.Alive.At.Equal(r.AlertAt))
					if !whole || r.UUID != locks[0].UUID || r.Revision != locks[0].Revision {
						t.Errorf("half of a revision: %+v beside %+v", r, locks[0])
						return
					}
				}
				runtime.Gosched()
			}
		})
	}
	for i := range 300 {
		ours := func(d *lockrecord.Draft) { d.Owner = d.UUID }
		w.do(slices.Concat(lock(t, "left", uuid(i), ours), lock(t, "right", uuid(i), ours))...)
		settle(t, v, w)
		w.do(slices.Concat(alive("left", i), alive("right", i))...)
		settle(t, v, w)
		w.do(removeAll(layout.Record("left")), removeAll(layout.Record("right")))
	}
	stop()
	readers.Wait()
}

// busy runs a random client that alternates between good and bad behavior, with pauses in which others get the
// processor. It prints its seed.
func busy(t testing.TB, c *clientv3.Client) *proctest.Task {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := &player{t: t, get: func(key string) (protocol.KV, bool) {
		resp, err := c.Get(t.Context(), key)
		if err != nil || len(resp.Kvs) == 0 {
			return protocol.KV{}, false
		}
		return protocol.KV{Value: resp.Kvs[0].Value, CreateRevision: resp.Kvs[0].CreateRevision}, true
	}}
	return proctest.Go(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			p.bytes = make([]byte, 40)
			for i := range p.bytes {
				p.bytes[i] = byte(random.Uint32())
			}
			// not ctx: requests in flight at the end would be committed after it
			_, _ = c.Txn(t.Context()).Then(onEtcd(p.ops())...).Commit() // may be refused
			time.Sleep(2 * time.Millisecond)
		}
		return nil
	})
}

func onEtcd(all []op) (ops []clientv3.Op) {
	for _, o := range all {
		switch {
		case o.prefix:
			ops = append(ops, clientv3.OpDelete(o.key, clientv3.WithPrefix()))
		case o.remove:
			ops = append(ops, clientv3.OpDelete(o.key))
		default:
			ops = append(ops, clientv3.OpPut(o.key, o.value))
		}
	}
	return ops
}

// The view follows random clients while the history is constantly compacted to the newest revision, the connection is
// cut repeatedly, and lists interleave.
func TestViewSurvivesCompactionAndCuts(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	admin := s.Client(t)
	proxy := etcdtest.NewProxy(t, s.Endpoint())
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{proxy.Endpoint()}, MaxUnaryRetries: 1,
		Logger: zap.NewNop(), DialTimeout: 2 * time.Second})
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	store := lockstore.New(c, layout)
	v := run(t, source(store), lockview.Options{RelistEvery: 200 * time.Millisecond})
	client := busy(t, admin)
	compact := func() int64 {
		resp, err := admin.Get(t.Context(), "now")
		proctest.Must(t, err)
		_, _ = admin.Compact(t.Context(), resp.Header.Revision) // fails if nothing was written since the last one
		return resp.Header.Revision
	}
	for restarts := uint64(0); restarts < 2; restarts = v.Stats().WatchRestarts["compacted"] {
		etcdtest.Eventually(t, "changes, and lists between them", func() bool {
			s := v.Stats()
			return s.Puts >= 500*(restarts+1) && s.Resyncs[lockview.ReasonPeriodic] > restarts
		})
		for v.Stats().WatchRestarts["compacted"] == restarts { // a periodic list may come first
			proxy.Cut()
			seen := v.Fresh().Revision
			for ; compact() < seen+100; time.Sleep(10 * time.Millisecond) {
			}
			proxy.Heal()
			etcdtest.Eventually(t, "what was written meanwhile", func() bool { return v.Fresh().Revision >= seen+100 })
		}
	}
	client.Stop(t)
	same(t, v, store)
	if s := v.Stats(); s.Healed != 0 {
		t.Errorf("%+v", s)
	}
}
