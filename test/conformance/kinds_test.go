//go:build conformance

package conformance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const kindsPage = "protocol/kinds.md#"

var kindChecks = []check{
	{name: "transactions: kinds", rule: kindsPage + "test-transactions-of-kinds",
		needs: "kinds transactions", short: true,
		wants: "each step of a share has exactly this transaction, and each answer means this",
		alone: func(t *testing.T, s *scene, c *client) {
			bodiesOf("kinds.json")(t, s, c)
			verdictsOf("kinds.json")(t, s, c)
		}},
	{name: "semaphore", rule: kindsPage + "kinds", needs: "semaphore", short: true, orders: true,
		wants: "so many permits are out and no more, each with a record of its own", pair: semaphore},
	{name: "permits counted", rule: kindsPage + "kinds", needs: "semaphore", short: true,
		wants: "no permit too many is out while requests and answers get lost, and all get their turns",
		pair:  permitsCounted},
	{name: "a heavy weight", rule: kindsPage + "kinds", needs: "semaphore", short: true, orders: true,
		wants: "nobody overtakes a waiter who wants many permits", pair: heavyWeight},
	{name: "readers and a writer", rule: kindsPage + "kinds", needs: "read-write", short: true, orders: true,
		wants: "readers share, a writer does not, and later readers stay behind it", pair: readersAndWriter},
	{name: "plain beside shares", rule: kindsPage + "kinds", needs: "semaphore read-write together once", short: true,
		orders: true, wants: "a plain lock waits for shares like a writer, but not for locks with names like theirs",
		pair: plainBesideShares},
	{name: "nobody starves", rule: kindsPage + "kinds", needs: "read-write",
		wants: "a writer among many readers, and readers among writers, all get their turns", pair: nobodyStarves},
	{name: "a share given up", rule: kindsPage + "kinds", needs: "semaphore", short: true,
		wants: "a waiter for a permit that gives up leaves nothing", alone: shareGivenUp},
	{name: "ghost of a share", rule: kindsPage + "kinds", needs: "semaphore", short: true,
		wants: "a late send of a claim takes no permit when its attempt is over", alone: shareGhost},
	{name: "share in a full etcd", rule: kindsPage + "from-acquire-to-release-of-a-share", needs: "semaphore",
		wants: "who gives up while etcd is out of space gives back what a lost send took", alone: shareInFullEtcd},
	{name: "lock delay of a share", rule: kindsPage + "lock-delays-of-shares", needs: "semaphore", short: true,
		wants: "a permit in its delay counts as taken", alone: shareDelay},
	{name: "several together", rule: kindsPage + "several-locks-and-writes-of-your-own", needs: "together", short: true,
		orders: true, wants: "several locks are taken all or none", pair: severalTogether},
	{name: "many together", rule: kindsPage + "several-locks-and-writes-of-your-own", needs: "together", short: true,
		wants: "more than fit into a transaction are taken one after the other, all or none", pair: manyTogether},
	{name: "kinds together", rule: kindsPage + "several-locks-and-writes-of-your-own", short: true,
		needs: "together semaphore read-write", wants: "several locks that others may share are taken all or none",
		pair: kindsTogether},
	{name: "once per period", rule: kindsPage + "jobs-that-run-once-for-each-tick", needs: "once", short: true,
		wants: "one call in each period runs the job, and none while the lock is held", pair: oncePerPeriod},
	{name: "once for a tick", rule: kindsPage + "jobs-that-run-once-for-each-tick", needs: "once", short: true,
		wants: "one call for each tick of a schedule runs the job, and none for an earlier one", pair: onceForTick},
	{name: "a period given back", rule: kindsPage + "jobs-that-run-once-for-each-tick", needs: "once back", short: true,
		wants: "a job that failed leaves the period as it was", pair: periodGivenBack},
	{name: "a period taken meanwhile", rule: kindsPage + "jobs-that-run-once-for-each-tick", needs: "once", short: true,
		wants: "who read the period before another took it does not run the job", alone: periodTakenMeanwhile},
	{name: "a period answered late", rule: kindsPage + "jobs-that-run-once-for-each-tick", needs: "once", short: true,
		wants: "a job whose hold is over does not begin, and its period is given back", alone: periodAnsweredLate},
	{name: "a lock handed on", rule: "protocol/witnesses.md#dead-holders", needs: "reserve", short: true,
		wants: "one process reserves a lock, and another extends and releases it", pair: handedOn},
	{name: "a leader", rule: kindsPage + "leaders", needs: "leader", short: true, orders: true,
		wants: "a leader says where it is and gives signs of life, and another follows it", pair: leads},
}

func permits(limit, weight int) request {
	return request{"kind": metadata.KindSemaphore, "limit": limit, "weight": weight}
}

var (
	reads  = request{"kind": metadata.KindShared}
	writes = request{"kind": metadata.KindExclusive}
)

// refused expects the answer to a try to name one of these holders.
func refused(t *testing.T, a answer, holders ...*lock) {
	t.Helper()
	if a.Error != "held" || a.Holder == nil {
		t.Fatalf("it was told %s, want held", a.line)
	}
	if !slices.ContainsFunc(holders, func(l *lock) bool { return l.uuid == a.Holder.UUID }) {
		t.Errorf("it was told %s, which names none of those who hold the lock", a.line)
	}
}

func semaphore(t *testing.T, s *scene, a, b *client) {
	const name = "pool/of 3"
	one, other := s.open(a), s.open(b)
	var held []*lock
	for i, d := range []*driver{one, other, one} {
		l := d.acquire(name, want{try: true, more: permits(3, 1)})
		r := s.record(fmt.Sprintf("%s#%d", name, i+1))
		share := r.Share()
		if r.UUID != l.uuid || r.Token != l.token || share.Permits != 1 || share.Limit != 3 {
			t.Errorf("the record of permit %d is that of %s with token %d and %+v, want %s with %d, one of three", i+1,
				r.UUID, r.Token, share, l.uuid, l.token)
		}
		held = append(held, l)
	}
	refused(t, other.do(want{try: true, more: permits(3, 1)}.request(name)), held...)
	refused(t, other.do(want{try: true, more: writes}.request(name)), held...)
	wait := s.queues(other, name, want{more: permits(3, 1)}, 1)
	held[1].mustRelease()
	next := wait.granted()
	if r := s.record(name + "#2"); r.UUID != next.uuid {
		t.Errorf("the lowest number that is free is 2, whose record is that of %q", r.UUID)
	}
	if a := held[0].alive("1 of 2"); a.Error != "" {
		t.Errorf("alive: %s", a.line)
	}
	held[0].mustRelease() // number 1 is free, and two permits are out
	refused(t, other.do(want{try: true, more: permits(3, 2)}.request(name)), held[2], next)
	held[2].mustRelease()
	next.mustRelease()
	all := one.acquire(name, want{try: true, more: permits(3, 3)})
	refused(t, other.do(want{try: true, more: permits(3, 1)}.request(name)), all)
	s.ends(all)
}

// crowd counts how many are inside at once, and the maximum.
type crowd struct {
	inside, most atomic.Int64
}

func (c *crowd) stays(hold time.Duration) func(*lock) error {
	return func(*lock) error {
		n := c.inside.Add(1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		time.Sleep(hold)
		c.inside.Add(-1)
		return nil
	}
}

func permitsCounted(t *testing.T, s *scene, a, b *client) {
	drivers, rounds := s.lossy(a, b)
	in := &crowd{}
	s.rounds("counted", drivers, rounds, want{more: permits(2, 1)}, in.stays(2*time.Millisecond))
	if most := in.most.Load(); most > 2 {
		t.Errorf("%d had one of two permits at once", most)
	}
	s.free("counted", "counted#1", "counted#2")
}

func heavyWeight(t *testing.T, s *scene, a, b *client) {
	const name = "heavy"
	one, other := s.open(a), s.open(b)
	small := one.acquire(name, want{try: true, more: permits(5, 1)})
	heavy := s.queues(other, name, want{more: permits(5, 5)}, 1)
	light := s.queues(s.open(a), name, want{more: permits(5, 1)}, 2)
	for _, newcomer := range []*driver{one, other} {
		if a := newcomer.do(want{try: true, more: permits(5, 1)}.request(name)); a.Error != "held" {
			t.Fatalf("a newcomer passed the waiters: %s", a.line)
		}
	}
	small.mustRelease()
	all := heavy.granted()
	light.unanswered("one of five permits was given out beside five")
	all.mustRelease()
	s.ends(light.granted())
}

func readersAndWriter(t *testing.T, s *scene, a, b *client) {
	const name = "catalogue"
	one, other := s.open(a), s.open(b)
	first := one.acquire(name, want{try: true, more: reads})
	second := other.acquire(name, want{try: true, more: reads})
	refused(t, other.do(want{try: true, more: writes}.request(name)), first, second)
	writer := s.queues(other, name, want{more: writes}, 1)
	var behind []*call
	for i, d := range []*driver{one, s.open(b)} {
		behind = append(behind, d.begin(name, want{more: reads}))
		s.queued(name, 2+i)
	}
	first.mustRelease()
	writer.unanswered("the writer got in beside a reader")
	second.mustRelease()
	written := writer.granted()
	if r := s.record(name); r.UUID != written.uuid || r.Attributes["kind"] != metadata.KindExclusive {
		t.Errorf("the writer's record is that of %q, %v", r.UUID, r.Attributes["kind"])
	}
	for _, reader := range behind {
		reader.unanswered("a reader got in beside the writer")
	}
	written.mustRelease()
	var reading []*lock
	for _, reader := range behind { // both at once
		reading = append(reading, reader.granted())
	}
	for _, l := range reading {
		l.mustRelease()
	}
	s.free(name)
	alone := one.acquire(name, want{try: true, more: writes})
	refused(t, other.do(want{try: true, more: reads}.request(name)), alone)
	alone.mustRelease()
}

func plainBesideShares(t *testing.T, s *scene, a, b *client) {
	const name = "nightly"
	other, one := s.open(a), s.open(b)
	permit := want{try: true, more: permits(3, 1)}
	both := want{try: true, more: request{"names": []string{name, "another"}}}
	held, second := other.acquire(name, permit), other.acquire(name, permit)
	for _, try := range []request{want{try: true}.request(name), both.request(name), daily()} {
		refused(t, one.do(try), held, second)
	}
	waits := []*call{s.queues(one, name, want{}, 1), s.queues(other, name, want{more: permits(3, 1)}, 2),
		s.queues(one, name, want{}, 3)}
	second.mustRelease()
	for _, wait := range waits {
		wait.unanswered("a plain lock is held beside a permit")
		held.mustRelease()
		held = wait.granted()
	}
	s.ends(held)
	other.acquire(name+"#7", want{try: true})
	other.acquire(name+"#3rd floor", want{try: true, more: reads})
	one.acquire(name, want{try: true}).mustRelease()
	plain := one.acquire(name, both)
	wait := s.queues(one, name, want{}, 1)
	plain.mustRelease()
	s.ends(wait.granted())
	if a := one.do(daily()); !a.Ran {
		t.Errorf("beside locks with names like those of shares, it was told %s", a.line)
	}
}

func nobodyStarves(t *testing.T, s *scene, a, b *client) {
	readers, writers := &crowd{}, &crowd{}
	drivers := s.several(a, b, 4)
	var all sync.WaitGroup
	all.Go(func() { s.rounds("busy", drivers[:6], times(10), want{more: reads}, readers.stays(5*time.Millisecond)) })
	all.Go(func() { s.rounds("busy", drivers[6:], times(10), want{more: writes}, writers.stays(time.Millisecond)) })
	all.Wait()
	if most := writers.most.Load(); most != 1 {
		t.Errorf("%d writers were at it at once", most)
	}
	s.free("busy")
}

func shareGivenUp(t *testing.T, s *scene, c *client) {
	const name = "given up"
	d := s.open(c)
	l := d.acquire(name, want{try: true, more: permits(1, 1)})
	l.keepsOut(d.do(want{wait: 2, more: permits(1, 1)}.request(name)))
	wait := s.queues(d, name, want{more: permits(1, 1)}, 1)
	wait.cancel()
	s.ends(l)
	if left := s.keys(s.layout.Prefix() + name); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

func shareGhost(t *testing.T, s *scene, c *client) {
	l, g := s.ghostly(c, want{wait: 30, more: permits(3, 1)})
	l.mustRelease()
	s.settles()
	g.arrives()
	s.staysFree("ghost#1")
	s.staysFree("ghost#2")
}

func shareInFullEtcd(t *testing.T, _ *scene, c *client) {
	e, s := server(t, etcdtest.Quota(8<<20))
	line := newWire(t, s.target[0])
	line.judgeBy(func(r sent) fate { return fate{loseAnswer: r.takes()} })
	s.timeout = 2
	d := s.open(c, line.Addr)
	permit := d.begin("permit", want{more: permits(3, 1)})
	etcdtest.Eventually(t, "its record", func() bool { return s.record("permit#1").UUID != "" })
	e.Fill(t, "/fill/")
	permit.cancel()
	s.free("permit#1")
	e.Drain(t, "/fill/")
	etcdtest.Eventually(t, "its tombstone", func() bool { return len(s.keys(s.layout.Cancelled(""))) > 0 })
}

func shareDelay(t *testing.T, s *scene, c *client) {
	const name = "delayed"
	d := s.open(c)
	key := s.layout.Delay(name + "#1")
	s.put(key, fmt.Sprintf(`{"lock":%q,"uuid":%q,"token":7,"permits":2,"ended":"forced","seconds":60}`, name+"#1",
		uuid.NewString()))
	l := d.acquire(name, want{try: true, more: permits(3, 1)})
	if r := s.record(name + "#2"); r.UUID != l.uuid {
		t.Errorf("the number of a share in its delay was given out: number 2 is that of %q", r.UUID)
	}
	if a := d.do(want{try: true, more: permits(3, 1)}.request(name)); a.Error != "held" || !a.Delayed {
		t.Errorf("with two of three permits in their delay and one taken it says %s, want held and delayed", a.line)
	}
	wait := s.queues(d, name, want{more: permits(3, 2)}, 1)
	s.txn(clientv3.OpDelete(key))
	wait.granted().mustRelease()
	s.ends(l)
}
