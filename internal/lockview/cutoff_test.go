package lockview_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The history is compacted all the time up to the newest revision, and the connection is cut again and again.
func TestViewSurvivesCompactionAndCuts(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	admin := s.Client(t)
	proxy := etcdtest.NewProxy(t, s.Endpoint())
	store := lockstore.New(through(t, proxy.Endpoint()), layout)
	v := run(t, source(store), lockview.Options{})
	until(t, v, "the first list", func() bool { return v.Fresh().Synced })
	stop := busy(t, admin)
	for i := range 80 {
		time.Sleep(50 * time.Millisecond)
		resp, err := admin.Get(t.Context(), "now")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Compact(t.Context(), resp.Header.Revision); err != nil {
			t.Log(err) // nothing was written since the last one
		}
		switch i % 20 {
		case 5:
			proxy.Cut()
		case 9:
			proxy.Heal()
		}
	}
	proxy.Heal()
	stop()
	same(t, v, store)
	if stats := v.Stats(); stats.WatchRestarts["compacted"] == 0 {
		t.Errorf("no watch was compacted: %+v", stats)
	}
}

func through(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A hold that ended unwatched counts as ended, with the ending that etcd has of it.
func TestHoldsThatEndWhileCutOff(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	h := holders{t, s.Client(t)}
	proxy := etcdtest.NewProxy(t, s.Endpoint())
	store := lockstore.New(through(t, proxy.Endpoint()), layout)
	direct := lockstore.New(h.etcd, layout)
	var mu sync.Mutex
	var ended []ending
	v := run(t, source(store), lockview.Options{Ended: func(r *metadata.Record, e *metadata.Ending) {
		mu.Lock()
		defer mu.Unlock()
		how := ""
		if e != nil {
			how = e.Ended
		}
		ended = append(ended, ending{r.Name, r.UUID, how})
	}})
	released := h.take("released", uuid(1))
	kept := h.take("kept", uuid(3))
	h.take("removed", uuid(2))
	until(t, v, "all locks", func() bool { return len(v.Locks()) == 3 })
	proxy.Stall()
	until(t, v, "the loss", func() bool { return !v.Fresh().Synced })
	if f := v.Fresh(); f.Cause == "" || len(v.Locks()) != 3 {
		t.Errorf("%+v", f)
	}
	h.release(released)
	r := v.Lock("removed")
	if errs := direct.AutoUnlock(t.Context(),
		[]metadata.Removal{{Record: r, Ending: metadata.NewEnding(r, metadata.EndedAutoUnlocked, "u2", "expired",
			time.Now())}}); errs[0] != nil {
		t.Fatal(errs)
	}
	if resp, err := h.etcd.Get(t.Context(), "now"); err != nil {
		t.Fatal(err)
	} else if _, err := h.etcd.Compact(t.Context(), resp.Header.Revision); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	until(t, v, "the truth", func() bool { return v.Fresh().Synced && len(v.Locks()) == 1 })
	same(t, v, direct)
	until(t, v, "both ends", func() bool { mu.Lock(); defer mu.Unlock(); return len(ended) >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if want := []ending{{"released", uuid(1), ""}, {"removed", uuid(2), "auto_unlocked"}}; !slices.Equal(sorted(ended),
		sorted(want)) {
		t.Errorf("ended %v, want %v", ended, want)
	}
	if v.Lock("kept").Token != kept.Token {
		t.Errorf("%+v", v.Lock("kept"))
	}
}

func sorted(e []ending) []ending {
	e = slices.Clone(e)
	slices.SortFunc(e, func(a, b ending) int { return len(a.lock) - len(b.lock) })
	return e
}

func TestViewSurvivesItsMembers(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3)
	c := m.Client(t)
	store := lockstore.New(c, layout)
	v := run(t, source(store), lockview.Options{})
	until(t, v, "the first list", func() bool { return v.Fresh().Synced })
	stop := busy(t, c)
	for range 2 {
		leader := m.Leader(t)
		m.Kill(leader)
		time.Sleep(2 * time.Second)
		m.Restart(leader)
		m.WaitReady(t)
		leader = m.Leader(t)
		m.Pause(leader)
		time.Sleep(10 * time.Second) // longer than a watch may be silent
		m.Resume(leader)
		m.WaitReady(t)
	}
	stop()
	m.WaitReady(t)
	same(t, v, store)
	t.Logf("%+v", v.Stats())
}

func TestViewSurvivesAnExpiredLogin(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Auth(), etcdtest.TokenTTL(1))
	s.AddUser(t, "reader", "secret", layout.Prefix(), etcdtest.Read)
	h := holders{t, s.Client(t)}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "reader", Password: "secret",
		MaxUnaryRetries: 1, Logger: zap.NewNop(), DialTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	proxyless := lockstore.New(c, layout) // asks too rarely to keep the login alive
	v := run(t, source(proxyless), lockview.Options{RelistEvery: 1500 * time.Millisecond})
	for i := range 5 {
		hold := h.take("a", uuid(i))
		until(t, v, "the lock", func() bool { r := v.Lock("a"); return r != nil && r.Token == hold.Token })
		time.Sleep(1200 * time.Millisecond)
		h.release(hold)
		until(t, v, "no lock", func() bool { return v.Lock("a") == nil })
	}
	t.Logf("%+v", v.Stats())
}

// An etcd restored from a copy of its files goes back in time. The view follows and reports it.
func TestViewReportsARestoredEtcd(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	h := holders{t, s.Client(t)}
	store := lockstore.New(s.Client(t), layout)
	h.take("old", uuid(1))
	s.Stop()
	backup := t.TempDir()
	copyDir(t, backup, s.Dir())
	s.Restart(t)
	for i := range 20 {
		h.take(fmt.Sprintf("new/%d", i), uuid(100+i))
	}
	v := run(t, source(store), lockview.Options{})
	until(t, v, "all locks", func() bool { return len(v.Locks()) == 21 })
	highest := v.Fresh().Revision
	s.Stop()
	if err := os.RemoveAll(s.Dir()); err != nil {
		t.Fatal(err)
	}
	copyDir(t, s.Dir(), backup)
	s.Restart(t)
	until(t, v, "the restored state", func() bool { return v.Fresh().Synced && len(v.Locks()) == 1 })
	if f := v.Fresh(); f.Revision >= f.Highest || f.Highest < highest {
		t.Errorf("%+v", f)
	}
	h.take("after", uuid(500))
	until(t, v, "what happens after", func() bool { return v.Lock("after") != nil })
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(filepath.Join(to, rel))
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = io.Copy(out, in)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
