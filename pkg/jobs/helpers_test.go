package jobs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// inMemory runs a test with an etcd in memory, in a bubble in which time passes at once.
func inMemory(t *testing.T, test func(t *testing.T, s *locktest.Server, locks *mutex.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		test(t, s, client(s, time.Now))
	})
}

// client is a lock client with a wall clock of its own.
func client(s *locktest.Server, now func() time.Time) *mutex.Client {
	return s.Client(mutex.Options{Owner: "billing", Hostname: "host-1", Now: now})
}

func set(t testing.TB, s *locktest.Server, o jobs.TaskOptions) *jobs.Tasks {
	t.Helper()
	tasks, err := jobs.NewTasks(client(s, time.Now), "invoices", o)
	proctest.Must(t, err)
	return tasks
}

// tasks is an etcd with a set of tasks, the first of which is "1".
func tasks(t testing.TB, o jobs.TaskOptions) (*locktest.Server, *jobs.Tasks) {
	t.Helper()
	s := locktest.NewInMemory(t)
	tasks := set(t, s, o)
	add(t, tasks, "1", "the data")
	return s, tasks
}

func add(t testing.TB, s *jobs.Tasks, task, data string) {
	t.Helper()
	if added, err := s.Add(context.Background(), task, data); !added || err != nil {
		t.Fatalf("add %s: %v, %v", task, added, err)
	}
}

func take(t testing.TB, s *jobs.Tasks, limit int) []*jobs.Task {
	t.Helper()
	taken, err := s.Take(context.Background(), limit)
	proctest.Must(t, err)
	return taken
}

// one takes what has to be the only task.
func one(t testing.TB, s *jobs.Tasks, attempt int, from string) *jobs.Task {
	t.Helper()
	taken := take(t, s, 5)
	if len(taken) != 1 || taken[0].Attempt() != attempt || taken[0].PreviousState() != from {
		t.Fatalf("taken %+v, want attempt %d from %s", taken, attempt, from)
	}
	return taken[0]
}

func finish(t testing.TB, task *jobs.Task, state string) {
	t.Helper()
	proctest.Must(t, task.Finish(state, "a note"))
}

func get(t testing.TB, s *jobs.Tasks, task string) jobs.TaskStatus {
	t.Helper()
	now, err := s.Get(context.Background(), task)
	proctest.Must(t, err)
	return now
}

func list(t testing.TB, s *jobs.Tasks) []jobs.TaskStatus {
	t.Helper()
	all, err := s.List(context.Background())
	proctest.Must(t, err)
	return all
}

func layout(testing.TB) protocol.Layout { return protocol.DefaultLayout() }

type commit = func() (*clientv3.TxnResponse, error)

// disturb has each transaction of the program under test done by commit.
func disturb(s *locktest.Server, commit func(send commit) (*clientv3.TxnResponse, error)) {
	s.Etcd().KV = &disturbed{s.Etcd().KV, commit}
}

type disturbed struct {
	clientv3.KV
	commit func(send commit) (*clientv3.TxnResponse, error)
}

func (d *disturbed) Txn(ctx context.Context) clientv3.Txn {
	return &txn{d.KV.Txn(context.WithoutCancel(ctx)), d}
}

type txn struct {
	clientv3.Txn
	by *disturbed
}

func (t *txn) If(c ...clientv3.Cmp) clientv3.Txn      { t.Txn = t.Txn.If(c...); return t }
func (t *txn) Then(o ...clientv3.Op) clientv3.Txn     { t.Txn = t.Txn.Then(o...); return t }
func (t *txn) Else(o ...clientv3.Op) clientv3.Txn     { t.Txn = t.Txn.Else(o...); return t }
func (t *txn) Commit() (*clientv3.TxnResponse, error) { return t.by.commit(t.Txn.Commit) }
