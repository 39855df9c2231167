//go:build conformance

package conformance

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// boundChecks are about how long a call may take.
func boundChecks() []check {
	return []check{
		{name: "a wait bounds the call", rule: "protocol.md#how-long-a-call-may-take",
			needs: []string{"basic"}, short: true,
			wants: "a call takes no longer than its wait, and a try no longer than the client's timeout, " +
				"whatever etcd does",
			alone: waitBoundsCall},
	}
}

// silent is the endpoint of a server that accepts, and answers nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepts sync.WaitGroup
	accepts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepts.Wait()
	})
	return "http://" + l.Addr().String()
}

// refusing is an endpoint at which nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// patient is the timeout of the client, in seconds.
const patient = 2.0

func waitBoundsCall(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	s.timeout = patient
	var calls sync.WaitGroup
	for about, endpoints := range map[string][]string{
		"etcd hangs": {silent(t)}, "two members hang": {silent(t), silent(t)}, "etcd is away": {refusing(t)},
	} {
		d := s.open(c, endpoints...)
		for _, wait := range []float64{0, 0.5, 3} {
			calls.Go(func() { isBounded(t, d, about, wait) })
		}
	}
	calls.Go(func() { fallsSilent(t, s, c) })
	calls.Wait()
}

// isBounded measures a call that cannot succeed. Where it takes too long, the machine may be busy: it is made again,
// twice.
func isBounded(t *testing.T, d *driver, about string, wait float64) {
	r := want{}.request(fmt.Sprint(about, wait))
	r["wait"] = wait
	most := wait
	if wait == 0 {
		most = patient
	}
	var took time.Duration
	for range 3 {
		began := time.Now()
		a, err := d.send(r).outcome()
		if err != nil {
			t.Error(err)
			return
		}
		if a.Error != "unavailable" || a.Message == "" {
			t.Errorf("%s, wait %v: %s, want unavailable and a message", about, wait, a.line)
		}
		took = a.at.Sub(began)
		t.Logf("%s: %s, wait %v: %.2f s", d.client.name, about, wait, took.Seconds())
		if took <= bound(most, d) {
			return
		}
	}
	t.Errorf("%s, wait %v: it took %.1f s", about, wait, took.Seconds())
}

// bound is the rule, and half a second for the driver and a busy machine: or, if that is more, as long as three calls
// take that ask etcd nothing.
func bound(most float64, d *driver) time.Duration {
	began := time.Now()
	a, err := d.send(want{}.request("")).outcome()
	if err != nil || a.Error != "refused" {
		d.t.Errorf("a lock without a name: %s, %v, want refused", a.line, err)
		return 0
	}
	return seconds(most+0.5) + max(seconds(0.5), 3*a.at.Sub(began))
}

// fallsSilent measures a wait for a lock that another holds, while etcd falls silent.
func fallsSilent(t *testing.T, s *scene, c *client) {
	s.write("held", s.somebody(newUUID()))
	const wait = 3.0
	var took time.Duration
	for range 3 {
		line := newWire(t, s.target[0])
		d := s.open(c, line.Addr)
		began := time.Now()
		call := d.begin("held", want{wait: wait})
		eventually(t, "a refusal", line.answeredSome)
		line.stall()
		a := call.wait()
		if a.Error != "timeout" || a.Holder == nil {
			t.Errorf("a wait for a lock that is held says %s, want timeout and the holder", a.line)
		}
		took = a.at.Sub(began)
		t.Logf("%s: etcd falls silent, wait %v: %.2f s", c.name, wait, took.Seconds())
		if took <= bound(wait, d) {
			return
		}
	}
	t.Errorf("etcd falls silent, wait %v: it took %.1f s", wait, took.Seconds())
}
