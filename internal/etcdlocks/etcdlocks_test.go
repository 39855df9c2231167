package etcdlocks_test

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

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// loaded returns the locks of a real etcd, each in a line.
func loaded(t *testing.T, etcd *clientv3.Client, prefixes ...string) (lines []string) {
	t.Helper()
	store := lockstore.New(etcd, protocol.DefaultLayout())
	rows, err := etcdlocks.Load(t.Context(), prefixes, protocol.DefaultLayout(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		l := r.Leased
		lines = append(lines, fmt.Sprintf("%s by %q, %d waiting, %v, %d keys, single %t, %s", r.Name, r.Owner,
			len(l.Waiters), l.Lease.TTL, l.Lease.Keys, l.Key == r.Name, l.Lease.Why))
	}
	return lines
}

func TestLocksOfRealClientsAreFound(t *testing.T) {
	etcd := etcdtest.Shared(t).Client(t)
	session := func(ttl int) *concurrency.Session {
		s, err := concurrency.NewSession(etcd, concurrency.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	first, second := session(60), session(30)
	held := concurrency.NewMutex(first, "app/reindex")
	if err := held.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := concurrency.NewMutex(second, "app/reindex").TryLock(t.Context()); !errors.Is(err,
		concurrency.ErrLocked) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { waits <- concurrency.NewMutex(second, "app/reindex").Lock(ctx) }()
	defer func() { cancel(); <-waits }()
	if err := concurrency.NewElection(first, "app/leader").Campaign(t.Context(), "node-7"); err != nil {
		t.Fatal(err)
	}
	put := func(key, value string, lease clientv3.LeaseID) {
		if _, err := etcd.Put(t.Context(), key, value, clientv3.WithLease(lease)); err != nil {
			t.Fatal(err)
		}
	}
	put(fmt.Sprintf("app/node/%d", second.Lease()), "a", second.Lease())           // as node's etcd3 writes it
	put(fmt.Sprintf("app/fake/%x", first.Lease()), "\xff\x00", second.Lease())     // another's lease in its name
	put("app/huge", strings.Repeat("€", 300_000), second.Lease())                  // is cut
	put(fmt.Sprintf("app/plain/%x", first.Lease()), "without a lease", 0)          // cannot be told from anything else
	put(fmt.Sprintf("/mutexes/.queue/x/%x", first.Lease()), "ours", first.Lease()) // has a lease, too
	etcdtest.Eventually(t, "a waiter", func() bool { return etcdtest.Count(t, etcd, "app/reindex/") == 2 })
	want := []string{
		fmt.Sprintf(`app/fake/%x by "", 0 waiting, 30s, 4 keys, single true, `, first.Lease()),
		`app/huge by "` + strings.Repeat("€", 341) + `", 0 waiting, 30s, 4 keys, single true, `,
		`app/leader by "node-7", 0 waiting, 1m0s, 3 keys, single false, `,
		`app/node by "a", 0 waiting, 30s, 4 keys, single false, `,
		`app/reindex by "", 1 waiting, 1m0s, 3 keys, single false, `,
	}
	if got := loaded(t, etcd, "app/", "app/reindex", "/mutexes/"); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestHiddenKeysAndTimesAreReported(t *testing.T) {
	s := etcdtest.Start(t, etcdtest.Auth())
	s.AddUser(t, "viewer", "secret", "app/", etcdtest.Read)
	root := s.Client(t)
	lease, err := root.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{fmt.Sprintf("app/x/%x", lease.ID), "elsewhere"} {
		if _, err := root.Put(t.Context(), key, "", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	viewer, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "viewer",
		Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	got := loaded(t, viewer, "app/")
	if len(got) != 1 || !strings.Contains(got[0], "app/x by") || !strings.Contains(got[0], "0s, 0 keys") ||
		!strings.Contains(got[0], "permission") {
		t.Errorf("found %q, want app/x, and that the time of its lease is hidden", got)
	}
	log := &proctest.Log{}
	others := etcdlocks.New([]string{"other/"}, protocol.DefaultLayout(), lockstore.New(viewer,
		protocol.DefaultLayout()), nil, zerolog.New(log))
	defer proctest.Go(t, others.Run).Stop(t)
	etcdtest.Eventually(t, "a warning", func() bool {
		return strings.Contains(log.String(), "etcd denies permission")
	})
}

// fake is an etcd whose events and leases a test chooses.
type fake struct {
	each    func(int64, []protocol.Event)
	watched sync.Map     // prefixes
	left    atomic.Int64 // of each lease, in nanoseconds
	ends    []string
}

func (f *fake) ListPrefix(_ context.Context, _ string, _ int64, each func(protocol.KV)) (int64, error) {
	each(protocol.KV{Key: "app/old/a", Lease: 10, CreateRevision: 5, ModRevision: 5})
	return 5, nil
}

func (f *fake) Watch(ctx context.Context, prefix string, _ int64, each func(int64, []protocol.Event)) error {
	f.watched.Store(prefix, nil)
	f.each = each
	<-ctx.Done()
	return ctx.Err()
}

func (f *fake) ReadLease(context.Context, int64) (protocol.Lease, error) {
	return protocol.Lease{TTL: time.Minute, Expires: time.Now().Add(time.Duration(f.left.Load()))}, nil
}

func (f *fake) view() *etcdlocks.View {
	prefixes := []string{"app/x", "app/", "app/"}
	return etcdlocks.New(prefixes, protocol.DefaultLayout(), f, func(r *locks.Row, e *metadata.Ending) {
		f.ends = append(f.ends, fmt.Sprintf("%s %q", r.Name, e.Cause))
	}, zerolog.Nop())
}

func (f *fake) put(key string, lease, revision int64) {
	f.each(revision, []protocol.Event{{KV: protocol.KV{Key: key, Lease: lease, CreateRevision: revision,
		ModRevision: revision}}})
}

func (f *fake) remove(key string) {
	f.each(0, []protocol.Event{{KV: protocol.KV{Key: key}, Deleted: true}})
}

// running runs a test with a view of a fake etcd, on a clock of its own.
func running(t *testing.T, test func(*fake, *etcdlocks.View)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.left.Store(int64(time.Minute))
		w := f.view()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		test(f, w)
		cancel()
		<-done
	})
}

func TestOnlyWatchedBeginningsAreKnown(t *testing.T) {
	running(t, func(f *fake, w *etcdlocks.View) {
		start := time.Now()
		time.Sleep(time.Minute)
		f.put("app/new/d", 13, 6)
		f.put("app/new/c", 12, 7)
		time.Sleep(time.Minute)
		f.remove("app/new/d")
		all := w.Rows()
		if len(all) != 2 {
			t.Fatalf("%d locks, want 2", len(all))
		}
		if f.each(0, nil); &all[0] != &w.Rows()[0] {
			t.Error("a sign of life changes the rows")
		}
		passed, old := all[0], all[1]
		if passed.Leased.Key != "app/new/c" || !passed.LockedAt.Equal(start.Add(2*time.Minute)) {
			t.Errorf("%s since %v: want the one that waited, since its predecessor left", passed.Leased.Key,
				passed.LockedAt)
		}
		if !old.LockedAt.IsZero() || old.SeenAt.Sub(start) > time.Second {
			t.Errorf("since %v, seen %v: want only that it has been seen since %v", old.LockedAt, old.SeenAt, start)
		}
		// Watches of the same keys would report changes twice, and out of order.
		if _, also := f.watched.Load("app/x"); also || len(w.Problems()) > 0 {
			t.Errorf("a prefix below another is watched, too; problems: %v", w.Problems())
		}
		time.Sleep(5 * time.Minute) // then it is listed again, without the other
		synctest.Wait()
		if all := w.Rows(); len(all) != 1 || !all[0].SeenAt.Equal(old.SeenAt) || len(f.ends) != 2 {
			t.Errorf("after another list there are %d locks and %d ends", len(all), len(f.ends))
		}
	})
}

// A waiter that leaves together with the holder, or in a queue of thousands, has held nothing.
func TestOnlyHoldersHaveEnds(t *testing.T) {
	running(t, func(f *fake, w *etcdlocks.View) {
		var gone []protocol.Event
		for n := range int64(20_000) {
			key := fmt.Sprintf("app/q/%x", n+11)
			f.put(key, n+11, n+6)
			gone = append(gone, protocol.Event{KV: protocol.KV{Key: key}, Deleted: true})
		}
		f.each(0, gone)
		if want := []string{`app/q ""`}; !slices.Equal(f.ends, want) || len(w.Rows()) != 1 {
			t.Errorf("%d ends, want one; %d locks", len(f.ends), len(w.Rows()))
		}
	})
}

func TestEndsAreToldAsFarAsTheyAreKnown(t *testing.T) {
	for _, tt := range []struct {
		name string
		left time.Duration // of the lease, when it was read for the last time
		want string
	}{
		{"released before its lease ends", time.Minute, metadata.EndingReleased},
		{"gone when its lease ends", 0, metadata.EndingLeaseEnded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			running(t, func(f *fake, _ *etcdlocks.View) {
				f.put("app/x/b", 11, 6)
				f.left.Store(int64(tt.left))
				time.Sleep(20 * time.Second) // it is read again
				synctest.Wait()
				f.remove("app/x/b")
				if want := fmt.Sprintf("app/x %q", tt.want); !slices.Equal(f.ends, []string{want}) {
					t.Errorf("ended: %q, want %s", f.ends, want)
				}
			})
		})
	}
}
