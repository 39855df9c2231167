//go:build conformance

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func severalTogether(t *testing.T, s *scene, a, b *client) {
	one, other := s.open(a), s.open(b)
	s.both(other).mustRelease()
	pair := s.both(one)
	refused(t, other.do(want{try: true, more: request{"names": []string{"account/2", "account/3"}}}.request("-")),
		&lock{uuid: s.record("account/2").UUID})
	if r := s.record("account/3"); r.Token != 0 {
		t.Errorf("one of two was taken although the other is held: %v", r.UUID)
	}
	pair.mustRelease()
	s.free("account/1", "account/2", "account/3")
}

func (s *scene) both(d *driver) *lock {
	names := []string{"account/1", "account/2"}
	pair := d.acquire(names[0], want{try: true, more: request{"names": names}})
	for _, name := range names {
		r := s.record(name)
		others := fmt.Sprint(r.Attributes["together_with"])
		if r.Token != pair.token || !strings.Contains(others, "account/") {
			s.t.Errorf("the record of %q has token %d, want %d, and is with %v", name, r.Token, pair.token, others)
		}
	}
	return pair
}

// manyTogether takes more locks than fit into one transaction, while another driver holds the last but one.
func manyTogether(t *testing.T, s *scene, a, b *client) {
	var names []string
	for i := range mutex.MaxBatch + 2 {
		names = append(names, fmt.Sprintf("many/%02d", i))
	}
	first, missing := names[0], names[len(names)-2]
	one, other := s.open(a), s.open(b)
	held := one.acquire(missing, want{try: true})
	more := request{"names": names}
	if a := other.do(want{try: true, more: more}.request(first)); a.Error != "refused" {
		t.Errorf("a try of more locks than one transaction takes says %s, want refused", a.line)
	}
	held.keepsOut(other.do(want{wait: 5, more: more}.request(first)))
	s.free(first)
	wait := other.begin(first, want{more: more})
	s.queued(missing, 1)
	etcdtest.Eventually(t, "what it waits for, as progress", func() bool {
		return strings.Contains(progress(s.record(first)), missing)
	})
	held.mustRelease()
	all := wait.granted()
	token := all.token - 1
	for _, name := range names {
		r := s.record(name)
		if r.Token <= token {
			t.Errorf("the record of %q has token %d, after %d", name, r.Token, token)
		}
		token = r.Token
	}
	all.mustRelease()
	s.free(names...)
}

// kindsTogether takes a share of one, permits of another and a plain lock together.
func kindsTogether(t *testing.T, s *scene, a, b *client) {
	records := []string{"catalogue#1", "pool#1", "zoo"}
	more := request{"names": []string{"catalogue", "pool", "zoo"},
		"own": request{"catalogue": reads, "pool": permits(3, 2)}}
	one, other := s.open(a), s.open(b)
	first := one.acquire("catalogue", want{more: more})
	for _, name := range records {
		r := s.record(name)
		if others := fmt.Sprint(r.Attributes["together_with"]); r.Token == 0 || !strings.Contains(others, ", ") {
			t.Errorf("the record of %q has token %d, and is with %v", name, r.Token, others)
		}
	}
	if a := other.do(want{try: true, more: more}.request("catalogue")); a.Error != "refused" {
		t.Fatalf("a try of several kinds says %s, want refused", a.line)
	}
	if a := other.do(want{wait: 1, more: more}.request("catalogue")); a.Error != "timeout" {
		t.Errorf("with two of three permits out, it says %s, want timeout", a.line)
	}
	s.free("catalogue#2")
	wait := other.begin("catalogue", want{more: more})
	s.queued("pool", 1)
	first.mustRelease()
	wait.granted().mustRelease()
	s.free(append(records, "catalogue#2", "pool#2")...)
}

func once(d *driver) *call { return d.send(daily()) }

func daily() request {
	const day = 86400.0
	return request{"do": "once", "name": "nightly", "every": day, "offset": 5400.0, "hold": 0.1}
}

func oncePerPeriod(t *testing.T, s *scene, a, b *client) {
	s.runsOnce(a, b, daily())
}

// onceForTick asks for ticks of a schedule, which count in milliseconds.
func onceForTick(t *testing.T, s *scene, a, b *client) {
	const tick = 1553682600.25
	at := func(tick float64) request {
		return request{"do": "once", "name": "nightly", "tick": tick, "hold": 0.1}
	}
	s.runsOnce(a, b, at(tick))
	d := s.open(b)
	for _, c := range []struct {
		tick float64
		ran  bool
	}{{tick - 60, false}, {tick + 0.0004, false}, {tick + 60, true}, {tick, false}} {
		if a := d.do(at(c.tick)); a.Error != "" || a.Ran != c.ran {
			t.Errorf("for the tick %v it says %s", c.tick, a.line)
		}
	}
	if value := s.value(s.layout.Period("nightly")); !strings.HasPrefix(value, "1553682660.25 ") {
		t.Errorf("the last tick is %q", value)
	}
	if a := d.do(at(4102444800)); a.Error != "refused" {
		t.Errorf("of a tick far ahead it says %s", a.line)
	}
}

// runsOnce asks several at once for a run of one tick.
func (s *scene) runsOnce(a, b *client, job request) {
	t := s.t
	once := func(d *driver) *call { return d.send(maps.Clone(job)) }
	drivers := s.several(a, b, 2)
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
		t.Errorf("the job ran %d times for one tick", ran)
	}
	for _, d := range drivers {
		if a := once(d).wait(); a.Error != "" || a.Ran {
			t.Errorf("%s: for a tick that is taken it says %s", d.client.name, a.line)
		}
	}
	s.free("nightly")
}

func periodGivenBack(t *testing.T, s *scene, a, b *client) {
	one, other := s.open(a), s.open(b)
	key := s.layout.Period("nightly")
	const before = "1553682600 taken by somebody else"
	s.put(key, before)
	fails := func(d *driver) string {
		job := daily()
		job["fails"] = true
		if a := d.do(job); a.Error != "" || !a.Ran {
			t.Errorf("of a job that failed it says %s", a.line)
		}
		s.free("nightly")
		return s.value(key)
	}
	if left := fails(other); left != before {
		t.Errorf("after a job that failed the period is %q, want %q", left, before)
	}
	s.txn(clientv3.OpDelete(key))
	if left := fails(one); left != "" {
		t.Errorf("after a job that failed the period is %q, and there was none before", left)
	}
	if a := once(other).wait(); !a.Ran {
		t.Errorf("nobody has the period, and it was told %s", a.line)
	}
	if a := once(one).wait(); a.Error != "" || a.Ran {
		t.Errorf("in a period that is taken it says %s", a.line)
	}
}

// periodTakenMeanwhile makes a client take the period while the claim of another, which read it before, is in flight.
func periodTakenMeanwhile(t *testing.T, s *scene, c *client) {
	line := newWire(t, s.target[0])
	late, first := s.open(c, line.Addr), s.open(c)
	claimed, taken := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(taken) })
	defer goOn()
	claims := sync.OnceFunc(func() { close(claimed) })
	line.judgeBy(func(r sent) fate {
		if r.takes() {
			claims()
			<-taken
		}
		return fate{}
	})
	job := once(late)
	(&ghost{t: t}).waitFor(claimed, "claim")
	if a := once(first).wait(); !a.Ran {
		t.Errorf("nobody had taken the period, and it was told %s", a.line)
	}
	goOn()
	if a := job.wait(); a.Ran || a.Error != "" && a.Error != "held" && a.Error != "unavailable" { // if it gave up
		t.Errorf("it ran in a period that was taken after it had read the key, or failed: %s", a.line)
	}
	s.free("nightly")
}

// periodAnsweredLate has the answers to a claim, and to what settles it, arrive after the hold that it asked for.
func periodAnsweredLate(t *testing.T, s *scene, c *client) {
	line := newWire(t, s.target[0])
	first := sync.OnceValue(time.Now)
	line.judgeBy(func(r sent) fate {
		puts := strings.Join(r.puts, " ")
		if strings.Contains(puts, "/.periods/") || strings.Contains(puts, "/.cancelled/") {
			return fate{slow: time.Until(first().Add(1900 * time.Millisecond))}
		}
		return fate{}
	})
	job := daily()
	job["alert_after"], job["auto_unlock_after"] = 1.0, 2.0
	if a := s.open(c, line.Addr).do(job); a.Error != "lost" {
		t.Errorf("of a job whose hold was over before it was answered it says %s", a.line)
	}
	if left := s.value(s.layout.Period("nightly")); left != "" && c.claims("back") {
		t.Errorf("after a job that did not begin the period is %q", left)
	}
	s.free("nightly")
}

// handedOn has a process that has ended leave its lock to another.
func handedOn(t *testing.T, s *scene, a, b *client) {
	one, other := s.open(a), s.open(b)
	reserve := request{"do": "reserve", "name": "nightly", "wait": 0, "purpose": "the nightly run",
		"auto_unlock_after": 60.0}
	left := one.must(maps.Clone(reserve))
	if r := s.record(left.Name); r.Process == nil || !r.Process.Detached || r.Purpose != "the nightly run" {
		t.Errorf("a reservation is %+v", r.Record)
	}
	if a := one.do(reserve); a.Error != "held" {
		t.Errorf("what is reserved is reserved again: %s", a.line)
	}
	one.kill()
	adopt := request{"do": "adopt", "name": left.Name, "uuid": left.UUID}
	adopted := other.send(maps.Clone(adopt)).granted()
	adopted.mustAlive("half of it")
	adopted.mustRelease()
	if a := other.do(adopt); a.Error != "lost" {
		t.Errorf("a hold that is over is adopted: %s", a.line)
	}
	s.free("nightly")
}

func leads(t *testing.T, s *scene, a, b *client) {
	one, other := s.open(a), s.open(b)
	stands := request{"life": 3.0, "address": "10.0.0.1:80"}
	leader := one.acquire("leader", want{more: stands})
	wait := s.queues(other, "leader", want{more: stands}, 1)
	s.leading()
	leader.mustRelease()
	next := wait.granted()
	next.comesAfter(leader)
	s.leading()
	s.ends(next)
}

// leading waits until the leader has published its address and given a sign of life.
func (s *scene) leading() {
	r := s.record("leader")
	if r.Attributes["address"] != "10.0.0.1:80" {
		s.t.Errorf("the leader's address is %v", r.Attributes["address"])
	}
	eventually(s.t, "a sign of life", func() error {
		if now := s.record("leader"); !now.AutoUnlockAt.After(r.AutoUnlockAt) || !now.AlertAt.After(r.AlertAt) {
			return fmt.Errorf("it ends at %v, and has an alert at %v", now.AutoUnlockAt, now.AlertAt)
		}
		return nil
	})
}

var kindFaults = []*fault{
	{name: "limit", about: "there is a permit more than the limit says", check: "semaphore",
		behind: true, says: "want held", short: true, request: func(r *goRequest) {
			if r.Limit > 0 {
				r.Limit++
			}
		}},
	{name: "compare of shares", about: "a claim does not compare the other shares", check: "semaphore", behind: true,
		says: "want held", short: true, txn: dropRangeCompares},
	{name: "weight", about: "a heavy weight takes one permit", check: "a heavy weight", behind: true,
		says: "1 tickets for", request: func(r *goRequest) { r.Weight = min(r.Weight, 1) }},
	{name: "newcomers for permits", about: "a claim of permits passes those who wait", check: "a heavy weight",
		behind: true, says: "a newcomer passed the waiters", short: true,
		txn: dropCompares("/.tail", pb.Compare_CREATE, true), answer: hide("/.tail")},
	{name: "writer", about: "a writer does not compare the shares", check: "readers and a writer", behind: true,
		says: "want held", short: true, txn: dropRangeCompares},
	{name: "plain", about: "a plain lock does not compare the shares", check: "plain beside shares", behind: true,
		says: "want held", short: true, txn: dropRangeCompares},
	{name: "reader", about: "a reader does not compare C(uuid) of the lock", check: "readers and a writer",
		behind: true, says: "want held", short: true, txn: dropCompares("catalogue/uuid", pb.Compare_CREATE, true)},
	{name: "delay of a share", about: "the number of a share in its delay is given out", check: "lock delay of a share",
		says: "was given out", short: true, txn: dropCompares("/.delays/", pb.Compare_CREATE, true)},
	{name: "cancel of a share", about: "a claim with an unanswered send is not cancelled", check: "ghost of a share",
		says: "a late send took the lock", txn: eachBranch(dropPuts("/.cancelled/"))},
	{name: "several", about: "one of several locks is taken although another holds it", check: "several together",
		behind: true, says: "want held", short: true, txn: dropCompares("/uuid", pb.Compare_CREATE, true)},
	{name: "all of several", about: "the last of several locks is left out", check: "several together", behind: true,
		says: `the record of "account/2" has token 0`, short: true, txn: eachBranch(dropPuts("/account%2F2/"))},
	{name: "many", about: "of more locks than fit into a transaction, those are taken that do",
		check: "many together", behind: true, says: "want refused", short: true, request: func(r *goRequest) {
			r.Names = r.Names[:min(len(r.Names), mutex.MaxBatch)]
		}},
	{name: "kinds of several", about: "several locks are plain ones, whatever is wanted", check: "kinds together",
		behind: true, says: "want refused", short: true, request: func(r *goRequest) {
			r.Own = nil
		}},
	{name: "rest of several", about: "what was taken is kept when the wait for the next is over",
		check: "many together", behind: true, says: `nothing left of ["many/00"]`,
		txn: eachBranch(dropDeletes("/many%2F"))},
	{name: "period of a failure", about: "a job that failed keeps its period", check: "a period given back",
		behind: true, says: "after a job that failed", short: true, txn: keepPeriod},
	{name: "period", about: "nobody reads which period was taken", check: "once per period", behind: true,
		says: "for a tick that is taken it says", short: true, txn: dropCompares("/.periods/", pb.Compare_MOD, true),
		answer: hide("/.periods/")},
	{name: "tick", about: "a tick is chosen by the clock", check: "once for a tick", behind: true,
		says: "for the tick", short: true, request: func(r *goRequest) {
			if r.Tick != nil {
				r.Tick, r.Every = nil, 1
			}
		}},
	{name: "compare of the period", about: "a job does not compare M(.periods)", check: "a period taken meanwhile",
		says: "it ran in a period that was taken", short: true, txn: dropCompares("/.periods/", pb.Compare_MOD, true)},
	{name: "late answer", about: "a job begins after its hold", check: "a period answered late",
		says: "of a job whose hold was over", short: true, request: func(r *goRequest) { r.UnlockAfter = 60 }},
	{name: "reservation", about: "another hold is adopted", check: "a lock handed on", behind: true,
		says: `"error":"lost"`, short: true, request: func(r *goRequest) {
			if r.Do == "adopt" {
				r.UUID = "11111111-2222-4333-8444-555555555555"
			}
		}},
	{name: "address", about: "a leader does not say where it is", check: "a leader", behind: true,
		says: "the leader's address is", short: true, request: func(r *goRequest) { r.Address = "" }},
	{name: "signs of life", about: "a leader gives none", check: "a leader", behind: true, says: "a sign of life",
		txn: keepDeadlines},
}

// dropRangeCompares drops compares of ranges: of shares and of their delays.
func dropRangeCompares(t *pb.TxnRequest) {
	t.Compare = slices.DeleteFunc(t.Compare, func(c *pb.Compare) bool { return len(c.RangeEnd) > 0 })
}

func keepDeadlines(t *pb.TxnRequest) {
	if !putsUUID(t) {
		eachBranch(dropPuts("_at"))(t)
	}
}

// keepPeriod never gives a period back.
func keepPeriod(t *pb.TxnRequest) {
	if !putsUUID(t) {
		eachBranch(dropPuts("/.periods/"))(t)
	}
}

// hide removes such keys from reads.
func hide(key string) func(*pb.TxnRequest, *pb.TxnResponse, error) error {
	return func(_ *pb.TxnRequest, r *pb.TxnResponse, err error) error {
		for _, one := range r.Responses {
			if read := one.GetResponseRange(); read != nil {
				read.Kvs = slices.DeleteFunc(read.Kvs, func(kv *mvccpb.KeyValue) bool {
					return strings.Contains(string(kv.Key), key)
				})
			}
		}
		return err
	}
}
