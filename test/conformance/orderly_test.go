//go:build conformance

package conformance

import (
	"syscall"
	"testing"
	"time"
)

// orderlyChecks are about what a process leaves behind when it ends.
func orderlyChecks() []check {
	return []check{
		{name: "orderly end", rule: "protocol.md#the-end-of-a-process", needs: []string{"basic"}, short: true,
			wants: "a process that is told to end, or ends by itself, gives back what it has", alone: orderlyEnd},
		{name: "orderly end without etcd", rule: "protocol.md#the-end-of-a-process",
			needs: []string{"basic"}, short: true,
			wants: "a process that is told to end does so although etcd is silent", alone: orderlyEndWithoutEtcd},
	}
}

// end is a way in which a process ends.
type end struct {
	how    string
	signal syscall.Signal // 0: by itself
}

func (c *client) ends() []end {
	all := []end{{how: "SIGTERM", signal: syscall.SIGTERM}, {how: "SIGINT", signal: syscall.SIGINT},
		{how: "SIGHUP", signal: syscall.SIGHUP}}
	if c.claims([]string{"exit"}) {
		all = append(all, end{how: "exit"}, end{how: "error"})
	}
	return all
}

// of ends the driver in this way.
func (e end) of(d *driver) {
	d.t.Helper()
	if e.signal == 0 {
		d.send(request{"do": "end", "how": e.how})
	} else if err := d.proc.Signal(e.signal); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.proc.Done():
	case <-time.After(*limit):
		d.t.Fatalf("%s: it still runs after %v", e.how, *limit)
	}
}

// fits reports whether the process ended as it would have without locks.
func (e end) fits(status syscall.WaitStatus) bool {
	switch {
	case e.signal != 0:
		return status.Signaled() && status.Signal() == e.signal || status.ExitStatus() == 128+int(e.signal)
	case e.how == "exit":
		return status.ExitStatus() == 0
	}
	return status.ExitStatus() > 0
}

func orderlyEnd(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	other := s.open(c)
	busy := other.acquire("busy", want{try: true})
	for _, e := range c.ends() {
		d := s.open(c)
		l := d.acquire("ends by "+e.how, want{try: true})
		d.acquire("ends by "+e.how+", too", want{try: true})
		if c.claims([]string{"queue"}) {
			d.begin(busy.name, want{})
			s.queued(busy.name, 1)
		}
		next := other.begin(l.name, want{})
		e.of(d)
		if status := d.proc.State().Sys().(syscall.WaitStatus); !e.fits(status) {
			t.Errorf("%s: it ended with %#x", e.how, status)
		}
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
	busy.mustRelease()
	s.free(busy.name)
}

// orderlyEndWithoutEtcd allows the two seconds of the rule, and five for a busy machine.
func orderlyEndWithoutEtcd(t *testing.T, w *world, c *client) {
	const most = 7 * time.Second
	s := w.scene(t)
	d, line := s.behindWire(c)
	l := d.acquire("ends in silence", want{wait: 30})
	line.stall()
	began := time.Now()
	e := c.ends()[0]
	e.of(d)
	if took := time.Since(began); took > most {
		t.Errorf("%s: it took %v to end", e.how, took)
	}
	if status := d.proc.State().Sys().(syscall.WaitStatus); !e.fits(status) {
		t.Errorf("%s: it ended with %#x", e.how, status)
	}
	if r := s.record(l.name); r.UUID != "" && r.UUID != l.uuid {
		t.Errorf("the record is %+v", r.Record)
	}
}
