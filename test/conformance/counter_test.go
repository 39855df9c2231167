//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// counterChecks are exact counters: whoever holds the lock adds one to a number, in two steps.
func counterChecks() []check {
	return []check{
		{name: "counter", rule: "protocol.md#the-idea", short: true,
			wants: "no two processes hold the lock at once, and all get their turns", pair: counterQuiet},
		{name: "counter, 4 % lost", rule: "protocol.md#errors-are-not-answers", short: true,
			wants: "the same while requests and answers get lost", pair: counterLossy},
		{name: "counter, etcd killed", rule: "protocol.md#errors-are-not-answers",
			wants: "the same while etcd is killed four times", pair: counterKilled},
	}
}

// counter is what the processes count together. Nothing protects it but the lock under test.
type counter struct {
	inside atomic.Int64
	done   atomic.Int64 // rounds
	value  int
	last   int64
}

// add is the work of a holder. It returns an error if another holder works, too.
func (n *counter) add(l *lock) error {
	if others := n.inside.Add(1) - 1; others != 0 {
		n.inside.Add(-1)
		return fmt.Errorf("%s got the lock with token %d while %d others held it", l.d.client.name, l.token, others)
	}
	value := n.value
	time.Sleep(time.Millisecond)
	n.value = value + 1
	last := n.last
	n.last = l.token
	n.inside.Add(-1)
	if l.token <= last {
		return fmt.Errorf("%s got token %d after %d", l.d.client.name, l.token, last)
	}
	return nil
}

// count has each driver take the lock so many times, and on until the channel is closed if there is one. It wants every
// round to have counted.
func (n *counter) count(t *testing.T, drivers []*driver, rounds int, until <-chan struct{}) {
	t.Helper()
	var all sync.WaitGroup
	for _, d := range drivers {
		all.Go(func() {
			for i := 0; i < rounds || !closed(until); i++ {
				if err := n.round(d); err != nil {
					t.Error(err)
					return
				}
				n.done.Add(1)
			}
		})
	}
	all.Wait()
	if n.value != int(n.done.Load()) && !t.Failed() {
		t.Errorf("the counter is %d after %d rounds", n.value, n.done.Load())
	}
}

// closed reports whether the channel is closed, or nil.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return c == nil
	}
}

func (n *counter) round(d *driver) error {
	c, a, err := d.take("counter")
	if err != nil {
		return err
	}
	l, err := c.lock(a)
	if err == nil {
		err = n.add(l)
	}
	if err != nil {
		return err
	}
	a, err = d.send(request{"do": "release", "lock": l.number}).outcome()
	if err == nil && a.Error != "" && a.Error != "unavailable" { // then the client goes on by itself
		err = fmt.Errorf("%s: release: %s", d.client.name, a.line)
	}
	return err
}

// take takes a lock, by trying again and again if the client cannot wait.
func (d *driver) take(name string) (*call, answer, error) {
	waits := d.client.claims([]string{"queue"})
	for deadline := time.Now().Add(*limit); ; time.Sleep(10 * time.Millisecond) {
		c := d.begin(name, want{try: !waits})
		a, err := c.outcome()
		if waits || err != nil || a.Error != "held" && a.Error != "unavailable" || time.Now().After(deadline) {
			return c, a, err
		}
	}
}

// several starts so many drivers of both clients.
func (s *scene) several(a, b *client, each int, endpoints ...string) (drivers []*driver) {
	s.t.Helper()
	for range each {
		drivers = append(drivers, s.open(a, endpoints...), s.open(b, endpoints...))
	}
	return drivers
}

// size is how many processes of each client count how often.
func size() (each, rounds int) {
	if testing.Short() {
		return 2, 3
	}
	return 4, 6
}

func counterQuiet(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	each, rounds := size()
	(&counter{}).count(t, s.several(a, b, each), rounds, nil)
	s.free("counter")
}

// lossy loses four of a hundred requests and as many answers, half of them in silence.
func lossy(sent) fate {
	n := rand.IntN(100)
	return fate{loseRequest: n < 4, loseAnswer: n >= 4 && n < 8, reset: n%2 == 0}
}

func counterLossy(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	s.timeout = 1
	line := newWire(t, s.target[0])
	each, rounds := size()
	drivers := s.several(a, b, each, line.Addr)
	line.judgeBy(lossy)
	(&counter{}).count(t, drivers, rounds, nil)
	line.judgeBy(nil)
	s.free("counter")
}

func counterKilled(t *testing.T, _ *world, a, b *client) {
	m := etcdtest.Cluster(t, 1, etcdtest.Gateway())
	s := newScene(t, m.Client(t), "/mutexes/", m.Endpoints()...)
	s.timeout = 1
	each, rounds := size()
	drivers := s.several(a, b, each)
	n := &counter{}
	killed := make(chan struct{})
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		n.count(t, drivers, rounds, killed)
	}()
	for range 4 {
		m.Kill(0)
		m.Restart(0)
		m.WaitReady(t)
		before := n.done.Load()
		eventually(t, "another round", func() error {
			if n.done.Load() == before && !closed(counted) {
				return errors.New("nobody got the lock since etcd answers again")
			}
			return nil
		})
	}
	close(killed)
	<-counted
	s.free("counter")
}
