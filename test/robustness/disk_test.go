//go:build robustness

package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// TestTheDiskOfTheLeaderHangs has a member whose disk hangs: it answers pings, but no requests. Another member leads.
// Clients of the hung member, unlockers too, turn to another after one attempt, so that a dead holder's lock is removed
// meanwhile.
func TestTheDiskOfTheLeaderHangs(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3, etcdtest.Fsync())
	s := newScene(t, m.Endpoints()...)
	s.programs()
	s.work(s.client(s.given))
	leader := m.Leader(t)
	repair := hang(t, m, leader)
	from := time.Now()
	ctx, cancel := timeout(time.Second)
	defer cancel()
	if _, err := m.ClientOf(t, leader).Put(ctx, "/elsewhere", ""); err == nil {
		t.Error("a member writes although its disk hangs")
	}
	s.stale("dead", time.Second)
	s.passes(5, 12*time.Second)
	s.gone("dead")
	repair()
	m.WaitReady(t)
	s.stillServed("dead too")
	s.removedOnce(from.Add(warning), "dead", "dead too")
}

func (s *stage) passes(times int, most time.Duration) {
	c := s.locker("busy")
	for range times {
		began := time.Now()
		l, err := c.TryLock(context.Background(), "busy")
		proctest.Must(s.t, err)
		proctest.Must(s.t, l.Unlock())
		if took := time.Since(began); took > most {
			s.t.Errorf("a free lock took %v", took)
		}
	}
}

// TestTheOnlyDiskHangs is an etcd that answers nobody for longer than holders have.
func TestTheOnlyDiskHangs(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 1, etcdtest.Fsync())
	s := newScene(t, m.Endpoints()...)
	s.programs()
	s.work(s.client(s.given))
	held := s.take("held", mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(3*time.Second))
	library := s.locker("library")
	s.stale("dead", time.Second)
	repair := hang(t, m, 0)
	ctx, cancel := timeout(2 * time.Second)
	defer cancel()
	began := time.Now()
	if _, err := library.TryLock(ctx, "another"); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(began) > 10*time.Second {
		t.Errorf("TryLock got its answer after %v: %v", time.Since(began), err)
	}
	lostFor(t, held)
	for _, p := range s.unlockers { // the locks of the dead, of who is cut off, and of three whose holders live
		s.heldBack(p, staleness.RuleEtcd, 5)
	}
	repaired := time.Now()
	repair()
	s.stopsInTime(held)
	s.stillServed("dead too")
	s.gone("dead", "held")
	s.removedOnce(repaired.Add(warning), "dead", "dead too", "held")
	s.sameView()
}

// TestAMemberThatDiesBetweenItsLogAndItsAnswer kills the only member at the very moment when a transaction is in its
// log and nobody was told. The transaction takes effect once, and the client that sent it learns so.
func TestAMemberThatDiesBetweenItsLogAndItsAnswer(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 1, etcdtest.Fsync())
	proxy := etcdtest.NewProxy(t, m.Endpoints()[0])
	s := newScene(t, proxy.Endpoint())
	s.direct = m.Client(t)
	c, err := mutex.New(s.client(s.given), mutex.Options{RequestTimeout: time.Minute})
	proctest.Must(t, err)
	defer c.Close()
	var l *mutex.Lock
	dies := func(ask func() error) (told <-chan error) {
		t.Helper()
		settled(t, m)
		over := onFlush(t, m.PID(0), "signal=KILL").Done()
		answer := make(chan error, 1)
		go func() { answer <- ask() }()
		<-over
		proxy.Cut() // nobody asks again until we looked
		m.Restart(0)
		m.WaitReady(t)
		return answer
	}
	ends := func(told <-chan error) {
		t.Helper()
		select {
		case err := <-told:
			t.Errorf("told while nobody could answer: %v", err)
		default:
		}
		proxy.Heal()
		proctest.Must(t, <-told)
	}

	told := dies(func() (err error) {
		l, err = c.TryLock(context.Background(), "a", mutex.AutoUnlockAfter(time.Hour))
		return err
	})
	token := s.tokens()["a"]
	if ends(told); l == nil || l.Token() != token {
		t.Fatalf("etcd has token %d; who asked has %+v", token, l)
	}

	told = dies(func() error { return l.Alive(context.Background(), "half") })
	alive := s.read(s.layout.Field("a", lockrecord.FieldAlive))
	if ends(told); len(alive) != 1 || !strings.HasSuffix(string(alive[0].Value), " half") {
		t.Errorf("etcd has %v", alive)
	}
	if end := s.read(s.layout.Field("a", lockrecord.FieldAutoUnlockAt)); end[0].Version != 2 {
		t.Errorf("the deadline was written %d times", end[0].Version)
	}

	sure, err := c.TryLock(t.Context(), "b") // after an acquisition in doubt, a lease is asked for before the release
	proctest.Must(t, err)
	told = dies(sure.Unlock)
	if _, held := s.tokens()["b"]; held {
		t.Error("the release is not in the log")
	}
	ends(told)
}

// settled waits until a member wrote all that it writes by itself: the version of its cluster comes last.
func settled(t testing.TB, m *etcdtest.Members) {
	for began := time.Now(); version(t, m) == "not_decided"; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 40*time.Second {
			t.Fatal("the cluster has no version")
		}
	}
	time.Sleep(time.Second) // and that goes to the disk by itself, too
}

// version is the version of etcd that all members of a cluster have in common.
func version(t testing.TB, m *etcdtest.Members) string {
	r, err := http.Get(m.Endpoints()[0] + "/version")
	proctest.Must(t, err)
	defer r.Body.Close()
	var version struct{ Etcdcluster string }
	proctest.Must(t, json.NewDecoder(r.Body).Decode(&version))
	return version.Etcdcluster
}
