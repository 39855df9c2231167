//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestPool has workers of all clients that know semaphores take one of five permits each, 1000 times in all (150 in the
// short set), while one of them is killed again and again. An unlocker takes the permits of the dead. At no revision of
// etcd are more than five out.
func TestPool(t *testing.T) {
	const limit, name = 5, "pool"
	rounds := int64(1000) // which take five minutes: each dead waiter keeps its place for ten seconds
	if testing.Short() {
		rounds = 150
	}
	w := newWorld(t)
	s := w.scene(t)
	s.unlocker()
	out := s.watchPermits(name)
	var all sync.WaitGroup
	var done, killed atomic.Int64
	names := map[string]bool{}
	for i, c := range findClients(t) {
		if !c.claims([]string{"semaphore"}) {
			continue
		}
		names[c.name] = true
		for worker := range 3 {
			all.Go(func() {
				d := s.open(c)
				for n := 1; done.Load() < rounds; n++ {
					w := want{more: permits(limit, 1), alert: 1, unlock: 4}
					if err := d.holds(name, w, func() { time.Sleep(time.Millisecond) }); err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
					if (n+i+7*worker)%20 == 0 { // each at another time
						d.begin(name, want{more: permits(limit, 1), alert: 1, unlock: 4})
						time.Sleep(20 * time.Millisecond)
						d.kill() // with the permit, or while it waits
						killed.Add(1)
						d = s.open(c)
					}
				}
			})
		}
	}
	all.Wait()
	most, taken := out()
	t.Logf("%d rounds by %v, %d killed; %d permits were taken, never more than %d out",
		done.Load(), names, killed.Load(), taken, most)
	if most > limit || int64(taken) < rounds {
		t.Errorf("%d permits of %d were out at once, %d were taken", most, limit, taken)
	}
}

// holds takes a lock, does its work and gives the lock back.
func (d *driver) holds(name string, w want, work func()) error {
	c := d.begin(name, w)
	a, err := c.outcome()
	var l *lock
	if err == nil {
		l, err = c.lock(a)
	}
	if err != nil {
		return err
	}
	work()
	a, err = d.send(request{"do": "release", "lock": l.number}).outcome()
	if err == nil && a.Error != "" && a.Error != "unavailable" {
		err = fmt.Errorf("%s: release: %s", d.client.name, a.line)
	}
	return err
}

// watchPermits counts the permits that are out at each revision. The result says how many there were at most, and how
// many were taken.
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

// kindChecks are about what is more than a lock with one holder.
func kindChecks() []check {
	const page = "protocol/kinds.md#"
	return []check{
		{name: "transactions: kinds", rule: page + "test-transactions-of-kinds",
			needs: []string{"kinds", "transactions"}, short: true,
			wants: "each step of a share has exactly this transaction, and each answer means this",
			alone: kindTransactions},
		{name: "semaphore", rule: page + "kinds", needs: []string{"semaphore"}, short: true, orders: true,
			wants: "so many permits are out and no more, each with a record of its own", pair: semaphore},
		{name: "permits counted", rule: page + "kinds", needs: []string{"semaphore"}, short: true,
			wants: "no permit too many is out while requests and answers get lost, and all get their turns",
			pair:  permitsCounted},
		{name: "a heavy weight", rule: page + "kinds", needs: []string{"semaphore"}, short: true, orders: true,
			wants: "nobody overtakes a waiter who wants many permits", pair: heavyWeight},
		{name: "readers and a writer", rule: page + "kinds", needs: []string{"read-write"}, short: true, orders: true,
			wants: "readers share, a writer does not, and later readers stay behind it", pair: readersAndWriter},
		{name: "nobody starves", rule: page + "kinds", needs: []string{"read-write"},
			wants: "a writer among many readers, and readers among writers, all get their turns", pair: nobodyStarves},
		{name: "a share given up", rule: page + "kinds", needs: []string{"semaphore"}, short: true,
			wants: "a waiter for a permit that gives up leaves nothing", alone: shareGivenUp},
		{name: "ghost of a share", rule: page + "kinds", needs: []string{"semaphore"}, short: true,
			wants: "a late send of a claim takes no permit when its attempt is over", alone: shareGhost},
		{name: "lock delay of a share", rule: page + "lock-delays-of-shares", needs: []string{"semaphore"}, short: true,
			wants: "a permit in its delay counts as taken", alone: shareDelay},
		{name: "several together", rule: page + "several-locks-and-writes-of-your-own", needs: []string{"together"},
			short: true, orders: true, wants: "several locks are taken all or none", pair: severalTogether},
		{name: "once per period", rule: page + "jobs-that-run-once-per-period", needs: []string{"once"}, short: true,
			wants: "one call in each period runs the job, and none while the lock is held", pair: oncePerPeriod},
		{name: "a leader", rule: page + "leaders", needs: []string{"leader"}, short: true, orders: true,
			wants: "a leader says where it is and gives signs of life, and another follows it", pair: leads},
	}
}

func permits(limit, weight int) request {
	return request{"kind": metadata.HoldsPermits, "limit": limit, "weight": weight}
}

var (
	reads  = request{"kind": metadata.HoldsShared}
	writes = request{"kind": metadata.HoldsExclusive}
)

// refused wants the answer to a try to name one of these holders.
func refused(t *testing.T, a answer, holders ...*lock) {
	t.Helper()
	if a.Error != "held" || a.Holder == nil {
		t.Errorf("it was told %s, want held", a.line)
		return
	}
	if !slices.ContainsFunc(holders, func(l *lock) bool { return l.uuid == a.Holder.UUID }) {
		t.Errorf("it was told %s, which names none of those who hold the lock", a.line)
	}
}

func kindTransactions(t *testing.T, _ *world, c *client) {
	bodiesOf(t, c, "kinds.json")
	verdictsOf(t, c, "kinds.json")
}

func semaphore(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	const name = "pool/of 3"
	one, other := s.open(a), s.open(b)
	var held []*lock
	for i, d := range []*driver{one, other, one} {
		l := d.acquire(name, want{try: true, more: permits(3, 1)})
		r := s.record(fmt.Sprintf("%s#%d", name, i+1))
		share := metadata.ShareOf(r.Name, r.Attributes)
		if r.UUID != l.uuid || r.Token != l.token || share.Permits != 1 || share.Limit != 3 {
			t.Errorf("the record of permit %d is that of %s with token %d and %+v, want %s with %d, one of three", i+1,
				r.UUID, r.Token, share, l.uuid, l.token)
		}
		held = append(held, l)
	}
	refused(t, other.do(want{try: true, more: permits(3, 1)}.request(name)), held...)
	refused(t, other.do(want{try: true, more: writes}.request(name)), held...)
	wait := other.begin(name, want{more: permits(3, 1)})
	s.queued(name, 1)
	held[1].mustRelease()
	next := wait.granted()
	if r := s.record(name + "#2"); r.UUID != next.uuid {
		t.Errorf("the lowest number that is free is 2, whose record is that of %q", r.UUID)
	}
	if a := held[0].alive("1 of 2"); a.Error != "" {
		t.Errorf("alive: %s", a.line)
	}
	for _, l := range []*lock{held[0], held[2], next} {
		l.mustRelease()
	}
	all := one.acquire(name, want{try: true, more: permits(3, 3)})
	refused(t, other.do(want{try: true, more: permits(3, 1)}.request(name)), all)
	all.mustRelease()
	s.free(name)
}

// crowd counts who is inside at once, of those who may be.
type crowd struct {
	inside, most atomic.Int64
}

func (c *crowd) enter() {
	n := c.inside.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
}

func (c *crowd) leave() { c.inside.Add(-1) }

// rounds has each driver take the lock so many times.
func (s *scene) rounds(name string, drivers []*driver, rounds int, w want, hold time.Duration, in *crowd) {
	var all sync.WaitGroup
	for _, d := range drivers {
		all.Go(func() {
			for range rounds {
				err := d.holds(name, w, func() {
					in.enter()
					time.Sleep(hold)
					in.leave()
				})
				if err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func permitsCounted(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	s.timeout = 1
	line := newWire(t, s.target[0])
	each, rounds := size()
	drivers := s.several(a, b, each, line.Addr)
	line.judgeBy(lossy)
	in := &crowd{}
	s.rounds("counted", drivers, rounds, want{more: permits(2, 1)}, 2*time.Millisecond, in)
	line.judgeBy(nil)
	if most := in.most.Load(); most > 2 {
		t.Errorf("%d had one of two permits at once", most)
	}
	s.free("counted")
	eventually(t, "no permit left", func() error {
		if left := s.keys(s.layout.Prefix() + "counted#"); len(left) > 0 {
			return fmt.Errorf("left are %q", left)
		}
		return nil
	})
}

func heavyWeight(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	const name = "heavy"
	one, other := s.open(a), s.open(b)
	small := one.acquire(name, want{try: true, more: permits(5, 1)})
	heavy := other.begin(name, want{more: permits(5, 5)})
	s.queued(name, 1)
	light := s.open(a).begin(name, want{more: permits(5, 1)})
	s.queued(name, 2)
	if a := one.do(want{try: true, more: permits(5, 1)}.request(name)); a.Error != "held" {
		t.Errorf("a newcomer passed the waiters: %s", a.line)
	}
	small.mustRelease()
	all := heavy.granted()
	if light.answered() {
		t.Errorf("one of five permits was given out beside five: %s", light.wait().line)
	}
	all.mustRelease()
	light.granted().mustRelease()
	s.free(name)
}

func readersAndWriter(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	const name = "catalogue"
	one, other := s.open(a), s.open(b)
	first := one.acquire(name, want{try: true, more: reads})
	second := other.acquire(name, want{try: true, more: reads})
	refused(t, other.do(want{try: true, more: writes}.request(name)), first, second)
	writer := other.begin(name, want{more: writes})
	s.queued(name, 1)
	var behind []*call
	for i, d := range []*driver{one, s.open(b)} {
		behind = append(behind, d.begin(name, want{more: reads}))
		s.queued(name, 2+i)
	}
	first.mustRelease()
	if writer.answered() {
		t.Errorf("the writer got in beside a reader: %s", writer.wait().line)
	}
	second.mustRelease()
	written := writer.granted()
	if r := s.record(name); r.UUID != written.uuid || r.Attributes["kind"] != metadata.HoldsExclusive {
		t.Errorf("the writer's record is that of %q, %v", r.UUID, r.Attributes["kind"])
	}
	for _, reader := range behind {
		if reader.answered() {
			t.Errorf("a reader got in beside the writer: %s", reader.wait().line)
		}
	}
	written.mustRelease()
	for _, reader := range behind { // both at once
		defer reader.granted().mustRelease()
	}
}

func nobodyStarves(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	readers, writers := &crowd{}, &crowd{}
	drivers := s.several(a, b, 4)
	var all sync.WaitGroup
	all.Go(func() { s.rounds("busy", drivers[:6], 10, want{more: reads}, 5*time.Millisecond, readers) })
	all.Go(func() { s.rounds("busy", drivers[6:], 10, want{more: writes}, time.Millisecond, writers) })
	all.Wait()
	if most := writers.most.Load(); most != 1 {
		t.Errorf("%d writers were at it at once", most)
	}
	s.free("busy")
}

func shareGivenUp(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	const name = "given up"
	d := s.open(c)
	l := d.acquire(name, want{try: true, more: permits(1, 1)})
	a := d.do(want{wait: 0.5, more: permits(1, 1)}.request(name))
	if a.Error != "timeout" || a.Holder == nil || a.Holder.UUID != l.uuid {
		t.Errorf("a wait that is over says %s, want timeout and the holder %s", a.line, l.uuid)
	}
	wait := d.begin(name, want{more: permits(1, 1)})
	s.queued(name, 1)
	d.must(request{"do": "cancel", "request": wait.id})
	if a := wait.wait(); a.Error != "cancelled" {
		t.Errorf("a wait that was cancelled says %s", a.line)
	}
	l.mustRelease()
	s.free(name)
	if left := s.keys(s.layout.Prefix() + name); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

func shareGhost(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d, line := s.behindWire(c)
	g := line.holdBack(t, sent.takes)
	l := d.acquire("ghost", want{wait: 30, more: permits(3, 1)})
	g.isCaught()
	l.mustRelease()
	s.settles()
	g.arrives()
	for share := 1; share <= 2; share++ {
		s.staysFree(fmt.Sprint("ghost#", share))
	}
}

func shareDelay(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	const name = "delayed"
	d := s.open(c)
	key := s.layout.Delay(name + "#1")
	ctx, cancel := s.context()
	defer cancel()
	document := fmt.Sprintf(`{"lock":%q,"uuid":%q,"token":7,"permits":2,"ended":"forced","seconds":60}`, name+"#1",
		newUUID())
	if _, err := s.etcd.Put(ctx, key, document); err != nil {
		t.Fatal(err)
	}
	l := d.acquire(name, want{try: true, more: permits(3, 1)})
	if r := s.record(name + "#2"); r.UUID != l.uuid {
		t.Errorf("the number of a share in its delay was given out: number 2 is that of %q", r.UUID)
	}
	if a := d.do(want{try: true, more: permits(3, 1)}.request(name)); a.Error != "held" || !a.Delayed {
		t.Errorf("with two of three permits in their delay and one taken it says %s, want held and delayed", a.line)
	}
	wait := d.begin(name, want{more: permits(3, 2)})
	s.queued(name, 1)
	if _, err := s.etcd.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	wait.granted().mustRelease()
	l.mustRelease()
	s.free(name)
}

func severalTogether(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	one, other := s.open(a), s.open(b)
	both := request{"names": []string{"account/1", "account/2"}}
	pair := one.acquire("account/1", want{try: true, more: both})
	for _, name := range both["names"].([]string) {
		r := s.record(name)
		others := fmt.Sprint(r.Attributes["together_with"])
		if r.Token != pair.token || !strings.Contains(others, "account/") {
			t.Errorf("the record of %q has token %d, want %d, and is with %v", name, r.Token, pair.token, others)
		}
	}
	refused(t, other.do(want{try: true, more: request{"names": []string{"account/2", "account/3"}}}.request("-")),
		&lock{uuid: s.record("account/2").UUID})
	if r := s.record("account/3"); r.Token != 0 {
		t.Errorf("one of two was taken although the other is held: %v", r.UUID)
	}
	wait := other.begin("account/2", want{more: request{"names": []string{"account/2", "account/3"}}})
	s.queued("account/2", 1)
	pair.mustRelease()
	wait.granted().mustRelease()
	for _, name := range []string{"account/1", "account/2", "account/3"} {
		s.free(name)
	}
}

func oncePerPeriod(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	const day = 86400.0
	drivers := s.several(a, b, 2)
	once := func(d *driver) *call {
		return d.send(request{"do": "once", "name": "nightly", "every": day, "offset": 5400.0, "hold": 0.1})
	}
	held := drivers[0].acquire("nightly", want{try: true})
	refused(t, once(drivers[1]).wait(), held)
	held.mustRelease()
	var calls []*call
	for _, d := range drivers {
		calls = append(calls, once(d))
	}
	ran := 0
	for _, c := range calls {
		switch a := c.wait(); {
		case a.Ran:
			ran++
		case a.Error != "" && a.Error != "held": // by the one that runs
			t.Errorf("%s: %s", c.d.client.name, a.line)
		}
	}
	if ran != 1 {
		t.Errorf("the job ran %d times in one period", ran)
	}
	for _, d := range drivers {
		if a := once(d).wait(); a.Error != "" || a.Ran {
			t.Errorf("%s: in a period that is taken it says %s", d.client.name, a.line)
		}
	}
	s.free("nightly")
}

func leads(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	one, other := s.open(a), s.open(b)
	stands := request{"life": 3.0, "address": "10.0.0.1:80"}
	leader := one.acquire("leader", want{more: stands})
	r := s.record("leader")
	if r.Attributes["address"] != "10.0.0.1:80" {
		t.Errorf("the leader's address is %v", r.Attributes["address"])
	}
	wait := other.begin("leader", want{more: stands})
	s.queued("leader", 1)
	eventually(t, "a sign of life", func() error {
		if now := s.record("leader"); !now.AutoUnlockAt.After(r.AutoUnlockAt) || !now.AlertAt.After(r.AlertAt) {
			return fmt.Errorf("it ends at %v, and has an alert at %v", now.AutoUnlockAt, now.AlertAt)
		}
		return nil
	})
	leader.mustRelease()
	next := wait.granted()
	if next.token <= leader.token {
		t.Errorf("the next leader has token %d after %d", next.token, leader.token)
	}
	next.mustRelease()
	s.free("leader")
}
