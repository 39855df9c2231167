package robustness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// newScene is a stage for one particular fault: nothing is broken at random, and the programs talk to etcd directly.
func newScene(t testing.TB, endpoints ...string) *stage {
	s := newStage(t, config{Seed: 1, Nodes: len(endpoints), World: plainWorld}, t.TempDir())
	t.Cleanup(s.wg.Wait)
	t.Cleanup(s.showLogs)
	s.given = endpoints
	s.direct = s.client(endpoints)
	return s
}

func (s *stage) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, file := range logs {
		if log, err := os.ReadFile(file); err == nil && s.t.Failed() {
			s.t.Logf("%s ends with:\n%s", filepath.Base(file), log[max(0, len(log)-4000):])
		}
	}
}

func (s *stage) programs(more ...string) {
	for range 2 {
		s.unlockers = append(s.unlockers, s.startUnlocker(1, more...))
	}
	s.startDash()
	for _, p := range s.unlockers {
		proctest.Answers(s.t, "http://"+p.addr+"/readyz", 200)
	}
}

func (s *stage) restartUnlocker(i int, more ...string) {
	s.unlockers[i].terminate(20 * time.Second)
	s.unlockers[i] = s.startUnlocker(1, more...)
	proctest.Answers(s.t, "http://"+s.unlockers[i].addr+"/readyz", 200)
}

func (s *stage) locker(owner string) *mutex.Client {
	c, err := mutex.New(s.client(s.given), mutex.Options{Owner: owner})
	proctest.Must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *stage) take(lock string, opts ...mutex.Option) *mutex.Lock {
	s.t.Helper()
	ctx, cancel := timeout(40 * time.Second)
	defer cancel()
	l, err := s.locker(lock).Lock(ctx, lock, opts...)
	proctest.Must(s.t, err)
	return l
}

// passed expects a waiter to get a lock with a greater token, releases the lock, and returns the token.
func (s *stage) passed(waits <-chan *mutex.Lock, before int64) (token int64) {
	s.t.Helper()
	select {
	case l := <-waits:
		if l.Token() <= before {
			s.t.Errorf("a token of %d after one of %d", l.Token(), before)
		}
		proctest.Must(s.t, l.Unlock())
		return l.Token()
	case <-time.After(40 * time.Second):
		s.t.Fatal("the waiter does not get the lock")
		return 0
	}
}

// stale takes a lock whose holder dies at once.
func (s *stage) stale(lock string, life time.Duration) *byHandHold {
	ctx, cancel := timeout(40 * time.Second)
	defer cancel()
	h := (&keepers{layout: s.layout}).take(ctx, s.direct, lock, 0, life)
	if h == nil {
		s.t.Fatalf("%q could not be taken", lock)
	}
	return h
}

// wait queues for a lock, and returns when etcd has this number of tickets.
func (s *stage) wait(lock string, place int) <-chan *mutex.Lock {
	c := s.locker("waiter")
	got := make(chan *mutex.Lock, 1)
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	s.wg.Go(func() {
		if l, err := c.Lock(ctx, lock, mutex.AutoUnlockAfter(time.Minute)); err == nil {
			got <- l
		}
	})
	s.until("a ticket", func(context.Context) error {
		if n := len(s.read(s.layout.Queue(lock))) - 1; n < place { // and the tail
			return fmt.Errorf("%d tickets", n)
		}
		return nil
	})
	return got
}

// work makes holders work until the end, through this client, and returns when they hold their locks.
func (s *stage) work(etcd *clientv3.Client) {
	s.startKeepers(etcd, 0)
	s.until("the keepers to hold their locks", func(context.Context) error {
		s.keepers.mu.Lock()
		defer s.keepers.mu.Unlock()
		if n := len(s.keepers.live); n < 4 {
			return fmt.Errorf("%d hold", n)
		}
		return nil
	})
}

func (s *stage) read(prefix string) (all []*mvccpb.KeyValue) {
	s.until("an answer of etcd", func(ctx context.Context) error {
		r, err := s.direct.Get(ctx, prefix, clientv3.WithPrefix())
		if err == nil {
			all = r.Kvs
		}
		return err
	})
	return all
}

// tokens returns the tokens of all held locks once etcd answers.
func (s *stage) tokens() (all map[string]int64) {
	s.until("an answer of etcd", func(ctx context.Context) (err error) {
		all, err = s.held(ctx)
		return err
	})
	return all
}

// allEndings returns the endings of holds that others ended, by lock.
func (s *stage) allEndings() map[string][]metadata.Ending {
	s.t.Helper()
	all := map[string][]metadata.Ending{}
	for _, kv := range s.read(s.layout.Histories()) {
		e, err := protocol.Unmarshal[metadata.Ending](kv.Value)
		proctest.Must(s.t, err)
		all[e.Name] = append(all[e.Name], e)
	}
	return all
}

// removedOnce checks that these locks were removed, each once and not before a time, and that nothing else was.
func (s *stage) removedOnce(from time.Time, locks ...string) {
	s.t.Helper()
	all := s.allEndings()
	for _, lock := range locks {
		if e := all[lock]; len(e) != 1 || e[0].Cause != metadata.EndingAutoUnlocked || e[0].EndedAt.Before(from) {
			s.t.Errorf("%q has these endings, wanted one, not before %v: %+v", lock, from, e)
		}
		delete(all, lock)
	}
	if len(all) > 0 {
		s.t.Errorf("removed without a reason: %+v", all)
	}
}

func (s *stage) gone(locks ...string) {
	s.t.Helper()
	s.until("the removal of "+strings.Join(locks, ", "), func(context.Context) error {
		held := s.tokens()
		for _, lock := range locks {
			if _, still := held[lock]; still {
				return fmt.Errorf("%q is still held", lock)
			}
		}
		return nil
	})
}

// heldBack waits until an unlocker reports that a rule holds back this many removals.
func (s *stage) heldBack(unlocker *child, rule staleness.Rule, locks float64) {
	s.t.Helper()
	s.metric(unlocker, fmt.Sprintf("unlocker_removal_held_back{reason=%q}", rule), locks)
}

func (s *stage) metric(unlocker *child, name string, want float64) {
	s.t.Helper()
	proctest.Eventually(s.t, unlocker.name+" to show "+name, func() error {
		value, err := proctest.Metric(unlocker.addr, name)
		if err == nil && value != want {
			err = fmt.Errorf("it is %v, wanted %v", value, want)
		}
		return err
	})
}

func says(t testing.TB, p *child, text string) bool {
	t.Helper()
	log, err := os.ReadFile(p.log)
	proctest.Must(t, err)
	return strings.Contains(string(log), text)
}

// lostFor waits until a holder learns that it lost its lock, and returns why.
func lostFor(t testing.TB, l *mutex.Lock) *mutex.LostError {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(40 * time.Second):
		t.Fatalf("the holder of %q does not learn that it lost it", l.Name())
	}
	lost, is := errors.AsType[*mutex.LostError](context.Cause(l.Context()))
	if !is {
		t.Fatalf("%q ended with %v", l.Name(), context.Cause(l.Context()))
	}
	return lost
}

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
	proctest.Must(t, err)
	defer library.Close()
	follower, err := library.Lock(t.Context(), "followed", mutex.Heartbeat(time.Hour),
		mutex.AutoUnlockAfter(20*time.Second))
	proctest.Must(t, err)
	m.Replace(t, 0)
	m.Replace(t, 1)
	s.direct = s.client(m.Endpoints())
	s.stillServed("one endpoint is left")

	stuck := s.take("stuck", mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(3*time.Second))
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
	s.stillServed("new endpoints")
	proctest.Must(t, follower.Alive(t.Context()))
	proctest.Must(t, follower.Unlock())
}

// stopsInTime expects a holder that cannot reach etcd to stop by its own clock, before the lock can have another
// holder.
func (s *stage) stopsInTime(l *mutex.Lock) {
	if lost, due := lostFor(s.t, l), s.deadline(l.Name()); lost.Certain || lost.At.After(due) {
		s.t.Errorf("the holder that is cut off stops at %v, for certain: %v; its deadline is %v", lost.At, lost.Certain,
			due)
	}
}

// following is a connection that asks etcd for its members now and then, and talks to those.
func following(t *testing.T, endpoints []string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(), DialTimeout: time.Second,
		AutoSyncInterval: 500 * time.Millisecond,
	})
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// stillServed expects a waiter to get the lock of a dead holder, through the unlockers, and the dashboard to show the
// locks.
func (s *stage) stillServed(lock string) {
	s.t.Helper()
	s.stale(lock, time.Second)
	proctest.Must(s.t, s.take(lock).Unlock())
	if e := s.allEndings()[lock]; len(e) != 1 {
		s.t.Errorf("%q has these endings: %+v", lock, e)
	}
	s.sameView()
}

func (s *stage) deadline(lock string) time.Time {
	s.t.Helper()
	kvs := s.read(s.layout.Field(lock, lockrecord.FieldAutoUnlockAt))
	if len(kvs) != 1 {
		s.t.Fatalf("%q has no deadline", lock)
	}
	at, err := metadata.ParseTime(string(kvs[0].Value))
	proctest.Must(s.t, err)
	return at
}
