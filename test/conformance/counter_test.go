//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// counterChecks count exactly: each holder of the lock adds one to a number, in two steps.
var counterChecks = []check{
	{name: "counter", rule: "protocol.md#the-idea", short: true,
		wants: "no two processes hold the lock at once, and all get their turns", pair: counterQuiet},
	{name: "counter, 4 % lost", rule: "protocol.md#errors-are-not-answers", short: true,
		wants: "the same while requests and answers get lost", pair: counterLossy},
	{name: "counter, etcd killed", rule: "protocol.md#errors-are-not-answers",
		wants: "the same while etcd is killed four times", pair: counterKilled},
}

// counter is the shared number. Only the lock under test protects it.
type counter struct {
	inside atomic.Int64
	done   atomic.Int64 // rounds
	value  int
	last   int64
}

// add is the work of a holder. It returns an error if another holder works at the same time.
func (n *counter) add(l *lock) error {
	if others := n.inside.Add(1) - 1; others != 0 {
		n.inside.Add(-1)
		return fmt.Errorf("%s got the lock with token %d while %d others held it", l.d.client.name, l.token, others)
	}
	value := n.value
	time.Sleep(time.Millisecond)
	n.value = value + 1
	n.done.Add(1)
	last := n.last
	n.last = l.token
	n.inside.Add(-1)
	if l.token <= last {
		return fmt.Errorf("%s got token %d after %d", l.d.client.name, l.token, last)
	}
	return nil
}

// count makes each driver take the lock, and expects every round to count.
func (n *counter) count(s *scene, drivers []*driver, more func(round int) bool) {
	s.t.Helper()
	s.rounds("counter", drivers, more, want{}, n.add)
	if n.value != int(n.done.Load()) && !s.t.Failed() {
		s.t.Errorf("the counter is %d after %d rounds", n.value, n.done.Load())
	}
	s.free("counter")
}

// rounds makes each driver take the lock and work until everything is done.
func (s *scene) rounds(name string, drivers []*driver, more func(round int) bool, w want, work func(*lock) error) {
	var all sync.WaitGroup
	for _, d := range drivers {
		all.Go(func() {
			for i := 0; more(i); i++ {
				if err := d.begin(name, w).holds(work); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func times(n int) func(round int) bool { return func(round int) bool { return round < n } }

func (c *call) holds(work func(*lock) error) error {
	a, err := c.outcome()
	var l *lock
	if err == nil {
		l, err = c.lock(a)
	}
	if err == nil {
		err = work(l)
	}
	if err != nil {
		return err
	}
	a, err = c.d.send(request{"do": "release", "lock": l.number}).outcome()
	if err == nil && a.Error != "" && a.Error != "unavailable" { // then the client goes on by itself
		err = fmt.Errorf("%s: release: %s", c.d.client.name, a.line)
	}
	return err
}

func (s *scene) several(a, b *client, each int, endpoints ...string) (drivers []*driver) {
	for range each {
		drivers = append(drivers, s.open(a, endpoints...), s.open(b, endpoints...))
	}
	return drivers
}

// size returns how many processes of each client count, and how often.
func size() (each, rounds int) {
	if testing.Short() {
		return 2, 3
	}
	return 4, 6
}

func counterQuiet(t *testing.T, s *scene, a, b *client) {
	each, rounds := size()
	(&counter{}).count(s, s.several(a, b, each), times(rounds))
}

// lossy starts drivers of both clients behind a wire that loses 4 % of requests and of answers, half of them silently.
func (s *scene) lossy(a, b *client) (drivers []*driver, more func(round int) bool) {
	s.timeout = 1
	line := newWire(s.t, s.target[0])
	each, rounds := size()
	drivers = s.several(a, b, each, line.Addr)
	line.judgeBy(func(sent) fate {
		n := rand.IntN(100)
		return fate{loseRequest: n < 4, loseAnswer: n >= 4 && n < 8, reset: n%2 == 0}
	})
	return drivers, times(rounds)
}

func counterLossy(t *testing.T, s *scene, a, b *client) {
	drivers, rounds := s.lossy(a, b)
	(&counter{}).count(s, drivers, rounds)
}

func counterKilled(t *testing.T, _ *scene, a, b *client) {
	m, s := cluster(t, 1)
	s.timeout = 1
	each, rounds := size()
	drivers := s.several(a, b, each)
	n := &counter{}
	var killed, ended atomic.Bool
	var counts sync.WaitGroup
	counts.Go(func() {
		defer ended.Store(true)
		n.count(s, drivers, func(i int) bool { return i < rounds || !killed.Load() })
	})
	for range 4 {
		m.Kill(0)
		m.Restart(0)
		m.WaitReady(t)
		before := n.done.Load()
		etcdtest.Eventually(t, "another round", func() bool { return n.done.Load() > before || ended.Load() })
	}
	killed.Store(true)
	counts.Wait()
}

// TestPool makes workers of all clients with semaphores take one of five permits each, 1000 times in all (150 in the
// short set), while one of them is killed repeatedly. An unlocker removes dead workers' permits. At no revision of etcd
// may more than five be taken.
func TestPool(t *testing.T) {
	t.Parallel()
	clients := slices.DeleteFunc(findClients(t), func(c *client) bool { return !c.claims("semaphore") })
	if len(clients) == 1 && *clientDirs != "" {
		return // Go alone, which nobody asked for
	}
	const limit, name = 5, "pool"
	rounds := int64(1000) // which take five minutes: each dead waiter keeps its place for ten seconds
	if testing.Short() {
		rounds = 150
	}
	s := newWorld(t).scene(t)
	s.unlocker()
	w := want{more: permits(limit, 1), alert: 1, unlock: 4}
	work := (&crowd{}).stays(time.Millisecond)
	out := s.watchPermits(name)
	var all sync.WaitGroup
	var done atomic.Int64
	for i, c := range clients {
		for worker := range 3 {
			all.Go(func() {
				d := s.open(c)
				for n := 1; done.Load() < rounds; n++ {
					if err := d.begin(name, w).holds(work); err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
					if (n+i+7*worker)%20 == 0 { // each at another time
						d.begin(name, w)
						time.Sleep(20 * time.Millisecond)
						d.kill() // with the permit, or while it waits
						d = s.open(c)
					}
				}
			})
		}
	}
	all.Wait()
	most, taken := out()
	t.Logf("%d rounds by %d clients; %d permits, never more than %d out", done.Load(), len(clients), taken, most)
	if most > limit || int64(taken) < rounds {
		t.Errorf("%d permits of %d were out at once, %d were taken", most, limit, taken)
	}
}

// watchPermits counts the taken permits at each revision. It returns the maximum and the number of acquisitions.
func (s *scene) watchPermits(name string) (count func() (most, taken int)) {
	ctx, stop := context.WithCancel(context.Background())
	from, end := s.layout.Shares(name)
	watch := s.etcd.Watch(ctx, from, clientv3.WithRange(end), clientv3.WithCreatedNotify())
	<-watch
	most, taken := 0, 0
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		out := map[string]bool{}
		for r := range watch {
			for _, e := range r.Events {
				key := string(e.Kv.Key)
				switch {
				case !strings.HasSuffix(key, "/uuid"):
				case e.Type == clientv3.EventTypeDelete:
					delete(out, key)
				default:
					out[key] = true
					taken++
					most = max(most, len(out))
				}
			}
		}
	}()
	return func() (int, int) {
		stop()
		<-counted
		return most, taken
	}
}
