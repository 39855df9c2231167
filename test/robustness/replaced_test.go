package robustness

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// TestMembersAreReplacedOneByOne replaces every member of etcd by one at another address. Programs know the endpoints
// that they were given: one of them that is left is enough, and without any they stop in time, until they are restarted
// with new ones. A client whose connection to etcd follows its members needs none of that.
func TestMembersAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3)
	s := newScene(t, m.Endpoints()...)
	s.programs()
	given := s.client(s.given)
	s.work(given)
	follows := following(t, s.given)
	library, err := mutex.New(follows, mutex.Options{Owner: "follower"})
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	follower, err := library.Lock(t.Context(), "followed", mutex.Heartbeat(time.Hour),
		mutex.AutoUnlockAfter(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	m.Replace(t, 0)
	m.Replace(t, 1)
	s.direct = s.client(m.Endpoints())
	s.stillServed(given, "one endpoint is left")

	stuck, err := s.locker("stuck").Lock(t.Context(), "stuck", mutex.Heartbeat(time.Hour),
		mutex.AutoUnlockAfter(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	given.SetEndpoints(m.Endpoints()[:2]...) // of the keepers: what a program does that is told of new ones
	m.Replace(t, 2)
	s.direct = s.client(m.Endpoints())
	s.stopsInTime(stuck)
	for i, p := range s.unlockers {
		s.metric(p, "unlocker_etcd_up", 0)
		s.given = m.Endpoints()
		s.restartUnlocker(i)
	}
	s.dash.kill()
	s.startDash()
	s.stillServed(given, "new endpoints")
	if err := follower.Alive(t.Context()); err != nil {
		t.Errorf("the client that follows the members: %v", err)
	}
	if err := follower.Unlock(); err != nil {
		t.Error(err)
	}
	s.nobodyLost()
}

// stopsInTime expects a holder that cannot ask etcd to end by its own clock, before anybody else may have the lock.
func (s *stage) stopsInTime(l *mutex.Lock) {
	s.t.Helper()
	if lost, due := lostFor(s.t, l), s.deadline(l.Name()); lost.Certain || lost.At.After(due) {
		s.t.Errorf("the holder that is cut off stops at %v, for certain: %v; its deadline is %v", lost.At, lost.Certain,
			due)
	}
}

// following is a connection that asks etcd for its members now and then, and talks to those.
func following(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(), DialTimeout: time.Second,
		AutoSyncInterval: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// stillServed expects a waiter to get the lock of a dead holder, through the unlockers, and the dashboard to show the
// locks.
func (s *stage) stillServed(etcd *clientv3.Client, lock string) {
	s.t.Helper()
	s.stale(lock, time.Second)
	c, err := mutex.New(etcd, mutex.Options{Owner: "waiter"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := timeout(40 * time.Second)
	defer cancel()
	l, err := c.Lock(ctx, lock)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		s.t.Error(err)
	}
	if e := s.allEndings()[lock]; len(e) != 1 {
		s.t.Errorf("%q has these endings: %+v", lock, e)
	}
	s.shown()
}

// deadline is the auto_unlock_at of a lock.
func (s *stage) deadline(lock string) time.Time {
	s.t.Helper()
	kvs := s.read(s.layout.Field(lock, metadata.FieldAutoUnlockAt))
	if len(kvs) != 1 {
		s.t.Fatalf("%q has no deadline", lock)
	}
	at, err := metadata.ParseTime(string(kvs[0].Value))
	if err != nil {
		s.t.Fatal(err)
	}
	return at
}
