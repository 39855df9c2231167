//go:build conformance

package conformance

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var lostChecks = []check{
	{name: "lost request", rule: "protocol.md#errors-are-not-answers", short: true,
		wants: "an unanswered request is sent again", alone: stepsWith(fate{loseRequest: true})},
	{name: "lost answer", rule: "protocol.md#errors-are-not-answers", short: true,
		wants: "a client recognises its own commit when the answer was lost", alone: stepsWith(fate{loseAnswer: true})},
	{name: "sent twice", rule: "protocol.md#errors-are-not-answers", short: true,
		wants: "a compare that fails because of the client's own earlier send is no refusal", alone: sentTwice},
	{name: "ghost after release", rule: "protocol.md#transactions", short: true,
		wants: "a late send of an acquire does not take the lock after its release", alone: ghostAfterRelease},
	{name: "ghost after loss", rule: "protocol.md#transactions", short: true,
		wants: "a late send of an acquire does not take the lock after its loss", alone: ghostAfterLoss},
	{name: "ghost after refusal", rule: "protocol.md#transactions", short: true,
		wants: "a late send of an acquire does not take the lock after a refusal", alone: ghostAfterRefusal},
	{name: "ghost after cancel", rule: "protocol.md#transactions", needs: "queue", short: true,
		wants: "a late send of an acquire does not take the lock after the caller gave up", alone: ghostAfterCancel},
	{name: "ghost of a try", rule: "protocol/queue.md#from-acquire-to-release", needs: "queue",
		wants: "a hold that a late try took, before its sender joined, ends when its record says", alone: ghostOfTry},
	{name: "ghost of a turn", rule: "protocol/queue.md#from-acquire-to-release", needs: "queue",
		wants: "a hold that a late turn took, after another was faster, ends when its record says", alone: ghostOfTurn},
	{name: "ghost in the queue", rule: "protocol/queue.md#the-queue", needs: "queue", short: true,
		wants: "a late join of a waiter that gave up leaves nobody in the queue", alone: ghostInTheQueue},
	{name: "no answer", rule: "protocol.md#waiting", short: true,
		wants: "a call that ends while etcd is silent says who was in the way, or that etcd never answered",
		alone: noAnswer},
}

func (w *wire) judgeNext(f fate) {
	var first atomic.Bool
	w.judgeBy(func(r sent) fate {
		if r.txn && first.CompareAndSwap(false, true) {
			return f
		}
		return fate{}
	})
}

// lossy starts a driver of the scene behind a wire, with a short timeout.
func (s *scene) behindWire(c *client) (*driver, *wire) {
	line := newWire(s.t, s.target[0])
	s.timeout = 1
	return s.open(c, line.Addr), line
}

// stepsWith loses the first send of an acquire, an alive and a release, silently and by closing the connection.
func stepsWith(lost fate) func(*testing.T, *scene, *client) {
	return func(t *testing.T, s *scene, c *client) {
		d, line := s.behindWire(c)
		for _, lost.reset = range []bool{false, true} {
			line.judgeNext(lost)
			l := d.acquire("lossy", want{wait: 30})
			s.recordOf(l)
			line.judgeNext(lost)
			l.mustAlive("on")
			if r := s.record(l.name); progress(r) != "on" {
				t.Errorf("%+v: after alive the record has %q", lost, progress(r))
			}
			line.judgeNext(lost)
			s.ends(l)
			l.lostNothing()
		}
	}
}

func sentTwice(t *testing.T, s *scene, c *client) {
	d, line := s.behindWire(c)
	line.judgeNext(fate{twice: true})
	l := d.acquire("twice", want{wait: 30})
	s.recordOf(l)
	line.judgeNext(fate{twice: true})
	l.mustAlive("on")
	line.judgeBy(nil)
	s.ends(l)
}

// ghost is a transaction that the wire holds back until free, after its sender gave up.
type ghost struct {
	t       *testing.T
	caught  chan struct{}
	free    chan struct{}
	arrived chan struct{}
}

// holdBack makes a ghost of the first request that fits. What becomes of the others is up to later.
func (w *wire) holdBack(t *testing.T, fits func(sent) bool, later func(*ghost, sent) fate) *ghost {
	g := &ghost{t: t, caught: make(chan struct{}), free: make(chan struct{}), arrived: make(chan struct{})}
	var first atomic.Bool
	w.judgeBy(func(r sent) fate {
		if fits(r) && first.CompareAndSwap(false, true) {
			close(g.caught)
			return fate{held: g.free, arrived: func() { close(g.arrived) }}
		}
		return later(g, r)
	})
	return g
}

func passes(*ghost, sent) fate { return fate{} }

func (g *ghost) isCaught() {
	g.t.Helper()
	g.waitFor(g.caught, "send")
}

func (g *ghost) arrives() {
	g.t.Helper()
	close(g.free)
	g.waitFor(g.arrived, "arrival")
}

func (g *ghost) waitFor(c <-chan struct{}, what string) {
	g.t.Helper()
	select {
	case <-c:
	case <-time.After(*limit):
		g.t.Fatalf("no %s of the request within %v", what, *limit)
	}
}

// staysFree expects the lock to have no holder and no waiters: at once, or after a client's cleanup, long before a
// deadline of the record.
func (s *scene) staysFree(name string) {
	s.t.Helper()
	var left []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = append(s.keys(s.layout.Record(name)), s.keys(s.layout.Queue(name))...)
		if len(left) == 0 {
			return
		}
	}
	s.t.Errorf("a late send took the lock, and nobody holds it: %q", left)
}

// staysFreeOf lets a late request arrive, and expects the lock to stay free.
func (s *scene) staysFreeOf(g *ghost, name string) {
	s.t.Helper()
	s.settles()
	g.arrives()
	s.staysFree(name)
}

// settles waits for the tombstone of a client in doubt, so that the late request arrives after it. If there is none,
// the late request will reveal it. A tombstone lives as long as a request may be in flight, not forever.
func (s *scene) settles() {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		tombstones := s.get(s.layout.Cancelled(""), clientv3.WithPrefix())
		for _, kv := range tombstones {
			s.livesLong(kv)
		}
		if len(tombstones) > 0 {
			return
		}
	}
}

// livesLong expects a key to have a lease of one to three hours.
func (s *scene) livesLong(kv *mvccpb.KeyValue) {
	if kv.Lease == 0 {
		s.t.Errorf("the tombstone %s has no lease: it would stay forever", kv.Key)
		return
	}
	ctx, cancel := s.context()
	defer cancel()
	r, err := s.etcd.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	proctest.Must(s.t, err)
	if least := int64(3600 - limit.Seconds()); r.TTL < least || r.TTL > 3*3600 {
		s.t.Errorf("the tombstone %s lives for %d s, want an hour", kv.Key, r.TTL)
	}
}

// ghostly takes a lock with a second request while the first is held back.
func (s *scene) ghostly(c *client, w want) (*lock, *ghost) {
	d, line := s.behindWire(c)
	g := line.holdBack(s.t, sent.takes, passes)
	l := d.acquire("ghost", w)
	g.isCaught()
	return l, g
}

func ghostAfterRelease(t *testing.T, s *scene, c *client) {
	l, g := s.ghostly(c, want{wait: 30})
	s.ends(l)
	s.staysFreeOf(g, l.name)
}

func ghostAfterLoss(t *testing.T, s *scene, c *client) {
	l, g := s.ghostly(c, want{wait: 30})
	s.delete(l.name)
	l.lostAs("deleted")
	s.staysFreeOf(g, l.name)
}

func ghostAfterRefusal(t *testing.T, s *scene, c *client) {
	s.write("ghost", s.somebody(uuid.NewString()))
	a, g := s.refusedLate(c, 1)
	for seconds := 5.0; a.Error == "unavailable" && seconds < limit.Seconds(); seconds *= 5 {
		g.arrives()
		a, g = s.refusedLate(c, seconds) // of a busy machine, all answers may come later than the client waits for them
	}
	if a.Error != "held" || a.Holder == nil || a.Holder.Owner != "somebody" {
		t.Errorf("the refused one says %s", a.line)
	}
	s.delete("ghost")
	s.staysFreeOf(g, "ghost")
}

// refusedLate returns the answer to a try whose first request is held back and whose second is refused. The client
// waits for each answer for a number of seconds.
func (s *scene) refusedLate(c *client, seconds float64) (answer, *ghost) {
	line := newWire(s.t, s.target[0])
	s.timeout = seconds
	d := s.open(c, line.Addr)
	g := line.holdBack(s.t, sent.takes, passes)
	try := d.begin("ghost", want{try: true})
	g.isCaught()
	return try.wait(), g
}

func ghostAfterCancel(t *testing.T, s *scene, c *client) {
	d, line := s.behindWire(c)
	g := line.holdBack(t, sent.takes, passes)
	wait := d.begin("ghost", want{})
	g.isCaught()
	d.must(request{"do": "cancel", "request": wait.id})
	if a := wait.wait(); a.Error == "" { // it was granted before
		l, err := wait.lock(a)
		proctest.Must(t, err)
		l.mustRelease()
	} else if a.Error != "cancelled" {
		t.Errorf("a wait that was cancelled says %s", a.line)
	}
	s.free("ghost")
	s.staysFreeOf(g, "ghost")
}

// ghostOfTry lets the ghost take the lock when its sender was refused; the sender joins after more than the margin.
func ghostOfTry(t *testing.T, s *scene, c *client) {
	s.write("late", s.somebody(uuid.NewString()))
	d, line := s.behindWire(c)
	end := time.Now().Add(6 * time.Second)
	var first sync.Once
	line.holdBack(t, sent.takes, func(g *ghost, r sent) fate {
		if r.method != pb.Lease_LeaseGrant_FullMethodName {
			return fate{}
		}
		first.Do(func() {
			s.delete("late")
			g.arrives()
		})
		return fate{loseRequest: time.Now().Before(end)}
	})
	s.endsInTime(d.acquire("late", want{alert: 15, unlock: 30}))
}

// ghostOfTurn has another be faster than the second send of a turn, and the ghost than its next turn.
func ghostOfTurn(t *testing.T, s *scene, c *client) {
	other := s.open(c).acquire("late", want{try: true})
	d, line := s.behindWire(c)
	wait := s.queues(d, other.name, want{alert: 15, unlock: 30}, 1)
	var claims atomic.Int64
	line.holdBack(t, sent.takes, func(g *ghost, r sent) fate {
		switch {
		case !r.takes():
		case claims.Add(1) == 1:
			s.write(other.name, s.somebody(uuid.NewString()))
		case claims.Load() == 2:
			g.arrives()
		}
		return fate{}
	})
	other.mustRelease()
	etcdtest.Eventually(t, "another holder", func() bool { return s.record(other.name).Owner == "somebody" })
	time.Sleep(6 * time.Second)
	s.delete(other.name)
	s.endsInTime(wait.granted())
}

// joins reports whether a transaction may join the queue: it puts a ticket, or does so if it cannot take the lock.
func (s sent) joins() bool {
	return slices.ContainsFunc(s.all, func(key string) bool { return strings.Contains(key, "/.queue/") })
}

func ghostInTheQueue(t *testing.T, s *scene, c *client) {
	d, line := s.behindWire(c)
	l := s.open(c).acquire("ghost", want{try: true})
	g := line.holdBack(t, sent.joins, passes)
	wait := d.begin(l.name, want{})
	g.isCaught()
	wait.cancel()
	s.queued(l.name, 0)
	s.settles()
	g.arrives()
	l.mustRelease()
	s.staysFree(l.name)
}

// noAnswer lets the answer to the first request for each lock that is held pass, and nothing else.
func noAnswer(t *testing.T, s *scene, c *client) {
	holder := s.open(c)
	d, line := s.behindWire(c)
	var answered sync.Map
	line.hearBy(func(r sent, _ *pb.TxnResponse) { answered.Store(strings.Join(r.puts, " "), true) })
	line.judgeBy(func(r sent) fate {
		keys := strings.Join(r.puts, " ")
		_, again := answered.Load(keys)
		return fate{loseRequest: again || !r.takes() || !strings.Contains(keys, "waits")}
	})
	held := map[*lock]*call{}
	for name, more := range c.ways("waits", "free") {
		l := holder.acquire(name, want{try: true, purpose: "held on"})
		held[l] = d.begin(name, want{wait: 3, more: more})
	}
	for l, wait := range held {
		l.keepsOut(wait.wait())
		l.mustRelease()
	}
	if a := d.try("never"); a.Error != "unavailable" {
		t.Errorf("a try without an answer says %s, want unavailable", a.line)
	}
	line.judgeBy(nil)
	s.ends(d.acquire("never", want{wait: 30}))
	s.staysFree("free")
	for l := range held {
		s.staysFree(l.name)
	}
}

func (w *wire) answeredSome() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answered > 0
}
