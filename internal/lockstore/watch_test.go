package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// quick makes watches ask for signs of life several times a second.
func quick(s *lockstore.Store) {
	lockstore.WithProgressInterval(300 * time.Millisecond)(s)
	patient(s)
}

// watching is a running watch.
type watching struct {
	world world
	stop  context.CancelFunc
	done  chan error

	mu       sync.Mutex
	turns    []string // "+key -key"
	revision int64
	signs    int
}

func (w world) watch(after int64) *watching {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g := &watching{world: w, stop: cancel, done: make(chan error, 1)}
	go func() { g.done <- w.Watch(ctx, w.l.Prefix(), after, g.each) }()
	w.Cleanup(cancel)
	return g
}

func (g *watching) each(revision int64, events []protocol.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if revision < g.revision || revision == g.revision && len(events) > 0 {
		g.world.Errorf("revision %d after %d", revision, g.revision)
	}
	g.revision = revision
	if len(events) == 0 {
		g.signs++
		return
	}
	var turn []string
	for _, e := range events {
		if e.ModRevision != revision {
			g.world.Errorf("event of revision %d in %d", e.ModRevision, revision)
		}
		sign := "+"
		if e.Deleted {
			sign = "-"
		}
		turn = append(turn, sign+strings.TrimPrefix(e.Key, protocol.DefaultPrefix))
	}
	slices.Sort(turn)
	g.turns = append(g.turns, strings.Join(turn, " "))
}

func (g *watching) saw() (turns []string, revision int64, signs int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.turns), g.revision, g.signs
}

// sees waits for n revisions with events.
func (g *watching) sees(n int) {
	g.world.Helper()
	etcdtest.Eventually(g.world, fmt.Sprintf("revision %d of the watch", n), func() bool {
		turns, _, _ := g.saw()
		return len(turns) >= n
	})
}

// lives waits for n signs of life, the last at this revision or a later one.
func (g *watching) lives(signs int, revision int64) {
	g.world.Helper()
	etcdtest.Eventually(g.world, "a sign of life", func() bool {
		_, now, n := g.saw()
		return n >= signs && now >= revision
	})
}

// endsFor waits for the end of the watch and expects this reason.
func (g *watching) endsFor(reason string) {
	g.world.Helper()
	if got := g.ended(); got != reason {
		g.world.Errorf("reason %q, want %q", got, reason)
	}
}

// ended waits for the end of the watch and returns the reason.
func (g *watching) ended() string {
	g.world.Helper()
	select {
	case err := <-g.done:
		var e *lockstore.WatchError
		if !errors.As(err, &e) {
			g.world.Fatalf("the watch ended with %v", err)
		}
		return e.Reason()
	case <-time.After(2 * time.Minute):
		g.world.Fatal("the watch does not end")
		return ""
	}
}

func TestWatchDeliversWholeRevisions(t *testing.T) {
	w := start(t)
	w.put("/other", "1")
	before := goleak.IgnoreCurrent()
	after := w.put(w.l.Prefix()+"before", "1")
	r := w.hold("a", uuid(1)) // before the watch begins: it is told all the same
	g := w.watch(after)
	w.put("/other", "2")
	w.alive(r, at.Add(time.Hour))
	w.release(r)
	w.put(w.l.History(uuid(1)), "{}")
	want := []string{
		"+a/alert_at +a/auto_unlock_at +a/metadata +a/uuid", "+a/alert_at +a/alive +a/auto_unlock_at",
		"-a/alert_at -a/alive -a/auto_unlock_at -a/metadata -a/uuid", "+.history/" + uuid(1),
	}
	g.sees(len(want))
	if turns, _, _ := g.saw(); !slices.Equal(turns, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(turns, "\n"), strings.Join(want, "\n"))
	}
	g.stop()
	if err := <-g.done; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled watch ended with %v", err)
	}
	proctest.Eventually(t, "no goroutine is left", func() error { return goleak.Find(before) })
}

func TestWatchOfAnIdleEtcdReportsProgress(t *testing.T) {
	w := alone(t, quick)
	g := w.watch(w.put("/other", ""))
	g.lives(3, 0)
	g.lives(4, w.put("/other", "")) // not below the prefix
}

func TestWatchEndsWhenCompacted(t *testing.T) {
	w := alone(t)
	after := w.put(w.l.Prefix()+"a", "1")
	w.compact(w.put(w.l.Prefix()+"a", "2"))
	w.watch(after - 1).endsFor(lockstore.ReasonCompacted)
}

func TestWatchEndsAfterARestore(t *testing.T) {
	w := alone(t, quick)
	w.watch(w.put("/other", "") + 1000).endsFor(lockstore.ReasonWentBack)
}

func TestWatchEndsWhenTheNetworkIsSilent(t *testing.T) {
	t.Parallel()
	p, w, _ := behindProxy(t, quick, lockstore.WithMaxSilence(time.Second))
	g := w.watch(w.put("/other", ""))
	etcdtest.Eventually(t, "a sign of life, or an end", func() bool {
		_, _, signs := g.saw()
		return signs > 0 || len(g.done) > 0
	})
	p.Stall()
	g.endsFor(lockstore.ReasonSilent)
}

// behindProxy returns two worlds on one etcd, the first behind a proxy.
func behindProxy(t *testing.T, opts ...lockstore.Option) (p *etcdtest.Proxy, w, other world) {
	t.Helper()
	s := etcdtest.Start(t)
	p = etcdtest.NewProxy(t, s.Endpoint())
	return p, on(t, dial(t, clientv3.Config{Endpoints: []string{p.Endpoint()}}), opts...), on(t, s.Client(t))
}

// A view that is far behind when it starts to watch, after a slow list, catches up: another list would be just as slow.
func TestWatchEndsIfItResumesFarBehind(t *testing.T) {
	t.Parallel()
	p, w, other := behindProxy(t)
	after := w.put("/other", "")
	g := w.watch(after)
	other.put(other.l.Prefix()+"1", "")
	g.sees(1)
	p.Cut()
	each(other, 6400, func(int) { other.put(other.l.Prefix()+"2", "") })
	p.Heal()
	g.endsFor(lockstore.ReasonBehind)
	other.watch(after).sees(6401)
}

func TestWatchEndsWithoutALeader(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3)
	leader := m.Leader(t)
	stays := (leader + 1) % 3
	w := on(t, m.ClientOf(t, stays))
	g := w.watch(1)
	etcdtest.Eventually(t, "a put", func() bool { // a busy machine has elections
		_, err := w.etcd.Put(t.Context(), w.l.Prefix()+"1", "")
		return err == nil
	})
	g.sees(1)
	m.Pause(leader)
	m.Pause((leader + 2) % 3)
	g.endsFor(lockstore.ReasonNoLeader)
}

// A stuck consumer costs memory up to a limit; beyond it, the watch ends.
func TestWatchEndsWhenItsConsumerIsTooSlow(t *testing.T) {
	w := alone(t)
	stuck, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	after := w.put("/other", "")
	go func() {
		done <- w.Watch(t.Context(), w.l.Prefix(), after, func(int64, []protocol.Event) {
			stuck <- struct{}{}
			<-release
		})
	}()
	big := strings.Repeat("x", 1<<20)
	w.put(w.l.Prefix()+"a", big)
	for {
		select {
		case <-stuck: // at first, and while a busy etcd has not sent as much
			for range 80 {
				w.put(w.l.Prefix()+"a", big)
			}
			release <- struct{}{}
		case err := <-done:
			var e *lockstore.WatchError
			if !errors.As(err, &e) || e.Reason() != lockstore.ReasonSlow {
				t.Errorf("the watch ended with %v", err)
			}
			return
		}
	}
}

func TestWatchEndsWhenPermissionIsRevoked(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Auth())
	s.AddUser(t, "stranger", "secret", "/elsewhere/", etcdtest.Read)
	on(t, clientAs(t, s, "stranger", "secret")).watch(1).endsFor(lockstore.ReasonPermission)
}
