//go:build conformance

package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var boundChecks = []check{
	{name: "a wait bounds the call", rule: "protocol.md#how-long-a-call-may-take", short: true,
		wants: "a call takes no longer than its wait, and a try no longer than the timeout, whatever etcd does",
		alone: waitBoundsCall},
}

// silent returns the endpoint of a server that accepts connections and never answers.
func silent(s *scene) string {
	p := etcdtest.NewProxy(s.t, s.target[0])
	p.Stall()
	return p.Endpoint()
}

// patient is the client's timeout in seconds.
const patient = 2.0

func waitBoundsCall(t *testing.T, s *scene, c *client) {
	s.timeout = patient
	var calls sync.WaitGroup
	for about, endpoints := range map[string][]string{
		"etcd hangs": {silent(s)}, "two members hang": {silent(s), silent(s)},
		"etcd is away": {"http://" + proctest.FreeAddr(t)},
	} {
		d := s.open(c, endpoints...)
		for _, wait := range []float64{0, 0.5, 3} {
			for name, more := range c.ways(fmt.Sprint(about, wait), "aside") {
				calls.Go(func() { isBounded(t, d, name, more, wait) })
			}
		}
	}
	calls.Go(func() { fallsSilent(t, s, c) })
	calls.Wait()
}

// ways returns a lock of each kind that the client has, by name, and how to ask for it; the last, with another.
func (c *client) ways(name, other string) map[string]request {
	all := map[string]request{name: nil, name + " semaphore": permits(3, 1), name + " read-write": reads,
		name + " together": {"names": []string{other, name + " together"}}}
	maps.DeleteFunc(all, func(of string, _ request) bool { return !c.claims(strings.TrimPrefix(of, name)) })
	return all
}

// isBounded measures a call that cannot succeed.
func isBounded(t *testing.T, d *driver, name string, more request, wait float64) {
	r := want{more: more}.request(name)
	r["wait"] = wait
	inTime(t, name, cmp.Or(wait, patient), func() (*driver, time.Duration) {
		began := time.Now()
		a, err := d.send(r).outcome()
		if err != nil || a.Error != "unavailable" || a.Message == "" {
			t.Errorf("%s: %s, %v, want unavailable and a message", name, a.line, err)
		}
		return d, a.at.Sub(began)
	})
}

// inTime measures a call. A call that takes too long is repeated twice, because the machine may be busy.
func inTime(t *testing.T, about string, most float64, measure func() (*driver, time.Duration)) {
	for range 2 {
		if d, took := measure(); took <= bound(most, d) {
			return
		}
	}
	if d, took := measure(); took > bound(most, d) {
		t.Errorf("%s: it took %.1f s", about, took.Seconds())
	}
}

// bound returns the rule's limit, plus half a second for the driver and a busy machine, or the time of three calls
// without etcd if that is more.
func bound(most float64, d *driver) time.Duration {
	began := time.Now()
	a, err := d.send(want{}.request("")).outcome()
	if err != nil || a.Error != "refused" {
		d.t.Errorf("a lock without a name: %s, %v, want refused", a.line, err)
		return 0
	}
	return seconds(most+0.5) + max(seconds(0.5), 3*a.at.Sub(began))
}

// fallsSilent measures waits for locks that are held while etcd stops answering.
func fallsSilent(t *testing.T, s *scene, c *client) {
	const wait = 3.0
	inTime(t, "etcd falls silent", wait, func() (d *driver, most time.Duration) {
		line := newWire(t, s.target[0])
		d = s.open(c, line.Addr)
		began := map[*call]time.Time{}
		id := uuid.NewString()
		for name, more := range c.ways("silence "+id, "first "+id) {
			s.write(name, s.somebody(uuid.NewString()))
			began[d.begin(name, want{wait: wait, more: more})] = time.Now()
			etcdtest.Eventually(t, "a refusal", func() bool {
				return line.answeredSome() && (!c.claims("queue") || len(s.tickets(name)) > 0)
			})
		}
		line.stall()
		for call, at := range began {
			a := call.wait()
			if a.Error != "timeout" || a.Holder == nil || a.Holder.Owner != "somebody" {
				t.Errorf("a wait for a lock that is held says %s, want timeout and the holder", a.line)
			}
			most = max(most, a.at.Sub(at))
		}
		return d, most
	})
}

var orderlyChecks = []check{
	{name: "orderly end", rule: "protocol.md#the-end-of-a-process", short: true,
		wants: "a process that is told to end, or ends by itself, gives back what it has", alone: orderlyEnd},
	{name: "orderly end without etcd", rule: "protocol.md#the-end-of-a-process", short: true,
		wants: "a process that is told to end does so although etcd is silent", alone: orderlyEndWithoutEtcd},
}

type end struct {
	how    string
	signal syscall.Signal // 0: by itself
}

func (c *client) ends() []end {
	all := []end{{how: "SIGTERM", signal: syscall.SIGTERM}, {how: "SIGINT", signal: syscall.SIGINT},
		{how: "SIGHUP", signal: syscall.SIGHUP}}
	if c.claims("exit") {
		all = append(all, end{how: "exit"}, end{how: "error"})
	}
	return all
}

func (e end) of(d *driver) {
	d.t.Helper()
	if e.signal == 0 {
		d.send(request{"do": "end", "how": e.how})
	} else {
		proctest.Must(d.t, d.proc.Signal(e.signal))
	}
	d.proc.Wait(d.t)
	if status := d.proc.State().Sys().(syscall.WaitStatus); !e.fits(status) {
		d.t.Errorf("%s: it ended with %#x", e.how, status)
	}
}

func (e end) fits(status syscall.WaitStatus) bool {
	switch {
	case e.signal != 0:
		return status.Signaled() && status.Signal() == e.signal || status.ExitStatus() == 128+int(e.signal)
	case e.how == "exit":
		return status.ExitStatus() == 0
	}
	return status.ExitStatus() > 0
}

func orderlyEnd(t *testing.T, s *scene, c *client) {
	other := s.open(c)
	busy := other.acquire("busy", want{try: true})
	for _, e := range c.ends() {
		d := s.open(c)
		l := d.acquire("ends by "+e.how, want{try: true})
		d.acquire("ends by "+e.how+", too", want{try: true})
		if c.claims("queue") {
			s.queues(d, busy.name, want{}, 1)
		}
		next := other.begin(l.name, want{})
		e.of(d)
		if left := s.tickets(busy.name); len(left) > 0 {
			t.Errorf("%s: it left its ticket %q", e.how, left)
		}
		if left := s.keys(s.layout.Record(l.name + ", too")); len(left) > 0 {
			t.Fatalf("%s: it left its lock: %q", e.how, left)
		}
		next.granted().mustRelease()
		if left := s.get(s.layout.History(l.uuid)); len(left) > 0 {
			t.Errorf("%s: somebody else ended its hold: %s", e.how, left[0].Value)
		}
	}
	s.ends(busy)
}

// orderlyEndWithoutEtcd allows the rule's two seconds, and five for a busy machine.
func orderlyEndWithoutEtcd(t *testing.T, s *scene, c *client) {
	const most = 7 * time.Second
	d, line := s.behindWire(c)
	l := d.acquire("ends in silence", want{wait: 30})
	line.stall()
	began := time.Now()
	e := c.ends()[0]
	e.of(d)
	if took := time.Since(began); took > most {
		t.Errorf("%s: it took %v to end", e.how, took)
	}
	if r := s.record(l.name); r.UUID != "" && r.UUID != l.uuid {
		t.Errorf("the record is %+v", r.Record)
	}
}
