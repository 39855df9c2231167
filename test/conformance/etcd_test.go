//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// etcdChecks are about what an etcd can be like.
func etcdChecks() []check {
	return []check{
		{name: "etcd hangs for 13 s", rule: "protocol.md#errors-are-not-answers", needs: []string{"queue"},
			wants: "a holder and its waiters survive an etcd that is silent for a while", pair: etcdHangs},
		{name: "three members, one dies", rule: "protocol/queue.md#waiting", needs: []string{"basic"},
			wants: "a client fails over to the members that are left", alone: memberDies},
		{name: "users and roles", rule: "protocol/operators.md#rights-in-etcd", short: true,
			wants: "a user with the right on the prefix takes locks, others are refused", alone: users},
		{name: "login renewed", rule: "protocol.md#errors-are-not-answers", needs: []string{"basic"},
			wants: "a client logs in again when its token has expired, or users and roles have changed",
			alone: loginRenewed},
		{name: "TLS", rule: "protocol.md#a-basic-client", short: true,
			wants: "a client trusts the given authority and no other, and shows its certificate", alone: withTLS},
		{name: "out of space", rule: "protocol.md#transactions",
			wants: "a lock can be released while etcd is full, and none is taken then", alone: outOfSpace},
	}
}

func plainHTTP() *http.Client { return &http.Client{} }

// etcdHangs stops etcd for 13 s, longer than a ticket's lease lives, under a holder of a and waiters of both.
func etcdHangs(t *testing.T, _ *world, a, b *client) {
	m := etcdtest.Cluster(t, 1, etcdtest.Gateway())
	s := newScene(t, m.Client(t), "/mutexes/", m.Endpoints()...)
	s.timeout = 2
	l := s.open(a).acquire("hang", want{wait: 30})
	one := s.open(b).begin(l.name, want{})
	s.queued(l.name, 1)
	two := s.open(a).begin(l.name, want{})
	s.queued(l.name, 2)
	m.Pause(0)
	until := time.Now().Add(13 * time.Second)
	if a := l.alive("into silence"); a.Error != "unavailable" && a.Error != "" {
		t.Errorf("alive of an etcd that hangs: %s", a.line)
	}
	eventually(t, "the end of the hang", func() error { return past(until) })
	m.Resume(0)
	m.WaitReady(t)
	if a := l.alive("on"); a.Error != "" {
		t.Errorf("alive after the hang: %s", a.line)
	}
	if e := l.had("lost"); e != nil {
		t.Errorf("the lock was held for long: %s", e.line)
	}
	l.mustRelease()
	got := make(chan *lock, 2)
	for _, wait := range []*call{one, two} {
		go func() {
			a, err := wait.outcome()
			if err != nil {
				t.Error(err)
			}
			next, err := wait.lock(a)
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
	}
	for range 2 {
		next := <-got
		if next == nil {
			t.FailNow()
		}
		next.mustRelease()
	}
	s.free(l.name)
}

func memberDies(t *testing.T, _ *world, c *client) {
	m := etcdtest.Cluster(t, 3, etcdtest.Gateway())
	s := newScene(t, m.Client(t), "/mutexes/", m.Endpoints()...)
	s.timeout = 2
	d := s.open(c)
	l := d.acquire("members", want{wait: 30})
	next := s.follows(c, l.name)
	for i := range 3 {
		m.Kill(i)
		eventually(t, fmt.Sprintf("alive without member %d", i), func() error { // an election may take its time
			if a := l.alive("on"); a.Error != "" {
				return errors.New(a.line)
			}
			return nil
		})
		free := s.open(c)
		free.acquire("other", want{wait: 30}).mustRelease()
		if i == 2 {
			break // the rest of the check is without it
		}
		m.Restart(i)
		m.WaitReady(t)
	}
	l.mustRelease()
	next().mustRelease()
	s.free(l.name)
}

// follows has another driver of the client wait for the lock until the function that it returns is called. A client
// that does not queue begins to wait only then.
func (s *scene) follows(c *client, name string) (granted func() *lock) {
	s.t.Helper()
	d := s.open(c)
	if !c.claims([]string{"queue"}) {
		return func() *lock { return d.acquire(name, want{wait: 30}) }
	}
	wait := d.begin(name, want{})
	s.queued(name, 1)
	return wait.granted
}

// secured is an etcd with users, of whom "locks" may take locks.
func secured(t *testing.T, opts ...etcdtest.Option) (*etcdtest.Server, *scene) {
	t.Helper()
	server := etcdtest.Start(t, append(opts, etcdtest.Gateway(), etcdtest.Auth())...)
	server.AddUser(t, "locks", "open sesame", "/mutexes/", etcdtest.ReadWrite)
	server.AddUser(t, "elsewhere", "open sesame", "/elsewhere/", etcdtest.ReadWrite)
	s := newScene(t, server.Client(t), "/mutexes/", server.Endpoint())
	s.user, s.password = "locks", "open sesame"
	return server, s
}

func users(t *testing.T, _ *world, c *client) {
	_, s := secured(t)
	l := s.open(c).acquire("with a user", want{try: true})
	if a := l.alive("on"); a.Error != "" {
		t.Errorf("alive: %s", a.line)
	}
	l.mustRelease()
	s.free(l.name)
	for _, bad := range []struct{ about, user, password string }{
		{"no right on the prefix", "elsewhere", "open sesame"},
		{"a wrong password", "locks", "wrong"},
		{"no user", "", ""},
	} {
		s.user, s.password = bad.user, bad.password
		d := c.start(t)
		a := d.do(s.opening()) // may log in at once, or later
		if a.Error == "" {
			a = d.try("refused")
		}
		if a.Error != "refused" {
			t.Errorf("%s: %s, want refused", bad.about, a.line)
		}
	}
	s.free("refused")
}

// loginRenewed lets the tokens of an idle holder and of a waiter expire, or of a driver that is idle until then.
func loginRenewed(t *testing.T, _ *world, c *client) {
	server, s := secured(t, etcdtest.TokenTTL(2))
	d := s.open(c)
	l := d.acquire("renewed", want{try: true})
	granted := s.follows(c, l.name)
	for range 2 {
		idle := time.Now().Add(5 * time.Second)
		eventually(t, "an idle time", func() error { return past(idle) })
		if a := l.alive("on"); a.Error != "" {
			t.Errorf("alive with an expired token: %s", a.line)
		}
	}
	server.AddUser(t, "another", "open sesame", "/another/", etcdtest.Read) // all tokens are old now
	if a := l.alive("on"); a.Error != "" {
		t.Errorf("alive after the users changed: %s", a.line)
	}
	idle := time.Now().Add(5 * time.Second)
	eventually(t, "an idle time", func() error { return past(idle) })
	l.mustRelease()
	granted().mustRelease()
	s.free(l.name)
}

func withTLS(t *testing.T, _ *world, c *client) {
	server := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.ClientCerts())
	s := newScene(t, server.Client(t), "/mutexes/", server.Endpoint())
	s.ca = server.CA().File()
	s.cert, s.key = server.CA().Issue(t, "client")
	s.open(c).acquire("with TLS", want{try: true}).mustRelease()
	s.free("with TLS")
	s.timeout = 2
	s.ca = etcdtest.NewCA(t).File()
	d := c.start(t)
	a := d.do(s.opening())
	if a.Error == "" {
		a = d.try("untrusted")
	}
	trusted := strings.Contains(a.Message, "certificate") && strings.Contains(a.Message, "is not trusted")
	switch {
	case !c.claims([]string{"gateway"}) && a.Error == "unavailable":
	case a.Error != "refused" || !trusted:
		t.Errorf("a server of another authority: %s, want refused, and that its certificate is not trusted", a.line)
	}
	s.free("untrusted")
}

func outOfSpace(t *testing.T, _ *world, c *client) {
	server := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.Quota(8<<20))
	s := newScene(t, server.Client(t), "/mutexes/", server.Endpoint())
	s.timeout = 2
	d := s.open(c)
	kept := d.acquire("kept", want{try: true})
	l := d.acquire("released", want{try: true})
	server.Fill(t, "/fill/")
	if a := l.alive("on"); a.Error != "unavailable" {
		t.Errorf("alive in a full etcd: %s, want unavailable", a.line)
	}
	if a := d.try("taken"); a.Error != "unavailable" && a.Error != "refused" {
		t.Errorf("a try in a full etcd: %s, want unavailable", a.line)
	}
	l.mustRelease()
	s.free(l.name)
	s.staysFree("taken")
	server.Drain(t, "/fill/")
	if a := kept.alive("on"); a.Error != "" {
		t.Errorf("alive after there is room again: %s", a.line)
	}
	kept.mustRelease()
	d.acquire("taken", want{wait: 30}).mustRelease()
	s.free("taken")
	s.free(kept.name)
}
