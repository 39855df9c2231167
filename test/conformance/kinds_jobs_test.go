//go:build conformance

package conformance

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func severalTogether(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	one, other := s.open(a), s.open(b)
	s.both(other).mustRelease()
	pair := s.both(one)
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

// both takes two locks at once, and looks at their records.
func (s *scene) both(d *driver) *lock {
	s.t.Helper()
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

// once asks for a job that runs once a day.
func once(d *driver) *call {
	const day = 86400.0
	return d.send(request{"do": "once", "name": "nightly", "every": day, "offset": 5400.0, "hold": 0.1})
}

func oncePerPeriod(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
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
		t.Errorf("the job ran %d times in one period", ran)
	}
	for _, d := range drivers {
		if a := once(d).wait(); a.Error != "" || a.Ran {
			t.Errorf("%s: in a period that is taken it says %s", d.client.name, a.line)
		}
	}
	s.free("nightly")
}

// periodTakenMeanwhile has a client take the period while the claim of another, which read it before, is on its way.
func periodTakenMeanwhile(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	line := newWire(t, s.target[0])
	late, first := s.open(c, line.Addr), s.open(c)
	claimed, taken := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(taken) })
	defer goOn()
	var caught atomic.Bool
	line.judgeBy(func(r sent) fate {
		if r.takes() && caught.CompareAndSwap(false, true) {
			close(claimed)
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
	if a := job.wait(); a.Ran || a.Error != "" && a.Error != "held" { // by the other, if its send was given up
		t.Errorf("it ran in a period that was taken after it had read the key, or failed: %s", a.line)
	}
	s.free("nightly")
}

func leads(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	one, other := s.open(a), s.open(b)
	stands := request{"life": 3.0, "address": "10.0.0.1:80"}
	leader := one.acquire("leader", want{more: stands})
	wait := other.begin("leader", want{more: stands})
	s.queued("leader", 1)
	s.leading()
	leader.mustRelease()
	next := wait.granted()
	if next.token <= leader.token {
		t.Errorf("the next leader has token %d after %d", next.token, leader.token)
	}
	s.leading()
	next.mustRelease()
	s.free("leader")
}

// leading waits until the leader has said where it is, and has given a sign of life.
func (s *scene) leading() {
	s.t.Helper()
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
