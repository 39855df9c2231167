package jobs_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// client returns a lock client that is closed, and has cleaned up, when the test ends.
func client(t testing.TB, etcd *clientv3.Client) *mutex.Client {
	t.Helper()
	c, err := mutex.New(etcd, mutex.Options{Owner: "billing", Hostname: "host-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func take(t testing.TB, c *mutex.Client, name string, opts ...mutex.Option) *mutex.Lock {
	t.Helper()
	l, err := c.TryLock(context.Background(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func set(t testing.TB, etcd *clientv3.Client, o jobs.TaskOptions) *jobs.Tasks {
	t.Helper()
	s, err := jobs.NewTasks(client(t, etcd), "invoices", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t testing.TB, s *jobs.Tasks, task, data string) {
	t.Helper()
	if added, err := s.Add(context.Background(), task, data); !added || err != nil {
		t.Fatalf("add %s: %v, %v", task, added, err)
	}
}

func capture(t testing.TB, s *jobs.Tasks, limit int) []*jobs.Task {
	t.Helper()
	captured, err := s.Capture(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return captured
}

func get(t testing.TB, s *jobs.Tasks, task string) jobs.TaskStatus {
	t.Helper()
	now, err := s.Get(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func list(t testing.TB, s *jobs.Tasks) []jobs.TaskStatus {
	t.Helper()
	all, err := s.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func layout(t testing.TB) protocol.Layout {
	t.Helper()
	l, err := protocol.NewLayout(mutex.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// record is the record of a lock as etcd has it.
func record(t testing.TB, etcd *clientv3.Client, lock string) metadata.Document {
	t.Helper()
	l := layout(t)
	r, err := etcd.Get(context.Background(), l.Record(lock), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	return metadata.Decode(lock, locktxn.Fields(l, r))
}

// autoUnlock does to a lock what an unlocker does when its time is up.
func autoUnlock(t testing.TB, etcd *clientv3.Client, lock string) {
	t.Helper()
	store, removal := removal(t, etcd, lock, metadata.EndedAutoUnlocked, "unlocker-1", "its time was up")
	for _, err := range store.AutoUnlock(context.Background(), []metadata.Removal{removal}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// forceUnlock does to a lock what an operator does on the dashboard.
func forceUnlock(t testing.TB, etcd *clientv3.Client, lock string) {
	t.Helper()
	store, removal := removal(t, etcd, lock, metadata.EndedForced, "ana", "it hung")
	action := protocol.Action{ID: "1", At: metadata.Time{Time: time.Now()}, Actor: "ana", Lock: lock, Reason: "it hung"}
	on := protocol.Subject{Hold: removal.Record}
	if _, err := store.Do(context.Background(), protocol.ActionForceUnlock, on, action); err != nil {
		t.Fatal(err)
	}
}

func removal(t testing.TB, etcd *clientv3.Client, lock, ended, by, why string) (*lockstore.Store, metadata.Removal) {
	t.Helper()
	store := lockstore.New(etcd, layout(t))
	doc, _, err := store.Get(context.Background(), lock)
	if err != nil {
		t.Fatal(err)
	}
	ending := metadata.NewEnding(&doc.Record, ended, by, why, time.Now())
	return store, metadata.Removal{Record: &doc.Record, Ending: ending}
}
