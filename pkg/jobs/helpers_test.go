package tasks_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/tasks"
)

// client is a lock client that has cleaned up after itself when the test ends.
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

func set(t testing.TB, etcd *clientv3.Client, o tasks.Options) *tasks.Set {
	t.Helper()
	s, err := tasks.New(etcd, client(t, etcd), "invoices", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t testing.TB, s *tasks.Set, task, data string) {
	t.Helper()
	if added, err := s.Add(context.Background(), task, data); !added || err != nil {
		t.Fatalf("add %s: %v, %v", task, added, err)
	}
}

func capture(t testing.TB, s *tasks.Set, limit int) []*tasks.Task {
	t.Helper()
	captured, err := s.Capture(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return captured
}

func get(t testing.TB, s *tasks.Set, task string) tasks.Status {
	t.Helper()
	now, err := s.Get(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func list(t testing.TB, s *tasks.Set) []tasks.Status {
	t.Helper()
	all, err := s.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func layout(t testing.TB) metadata.Layout {
	t.Helper()
	l, err := metadata.NewLayout(mutex.DefaultPrefix)
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
	store := lockstore.New(etcd, layout(t))
	doc, _, err := store.Get(context.Background(), lock)
	if err != nil {
		t.Fatal(err)
	}
	ending := metadata.NewEnding(&doc.Record, metadata.EndedAutoUnlocked, "unlocker-1", "its time was up", time.Now())
	for _, err := range store.AutoUnlock(context.Background(),
		[]metadata.Removal{{Record: &doc.Record, Ending: ending}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}
