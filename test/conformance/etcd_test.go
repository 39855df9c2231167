//go:build conformance

package conformance

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var etcdChecks = []check{
	{name: "etcd hangs for 13 s", rule: "protocol.md#errors-are-not-answers", needs: "queue",
		wants: "a holder and its waiters survive an etcd that is silent for a while", pair: etcdHangs},
	{name: "three members, one dies", rule: "protocol/queue.md#waiting",
		wants: "a client fails over to the members that are left", alone: memberDies},
	{name: "members that cannot serve", rule: "protocol.md#errors-are-not-answers", short: true,
		wants: "whatever is sent again goes to the next endpoint: a learner is not asked twice", alone: uselessMembers},
	{name: "users and roles", rule: "protocol/operators.md#rights-in-etcd", short: true,
		wants: "a user with the right on the prefix takes locks, others are refused", alone: users},
	{name: "login renewed", rule: "protocol.md#errors-are-not-answers",
		wants: "a client logs in again when its token has expired, or users and roles have changed",
		alone: loginRenewed},
	{name: "TLS", rule: "protocol.md#a-basic-client", short: true,
		wants: "a client trusts the given authority and no other, and shows its certificate", alone: withTLS},
	{name: "certificates renewed", rule: "protocol.md#a-basic-client", short: true,
		wants: "new connections use the files as they are now, whichever of them changed", alone: certificatesRenewed},
	{name: "out of space", rule: "protocol.md#transactions",
		wants: "a lock can be released while etcd is full, and none is taken then", alone: outOfSpace},
}

// cluster starts an etcd for one check, with this many members, whose drivers wait 2 s for an answer.
func cluster(t *testing.T, members int) (*etcdtest.Members, *scene) {
	m := etcdtest.Cluster(t, members, etcdtest.Gateway())
	s := newScene(t, m.Client(t), "/mutexes/", m.Endpoints()...)
	s.timeout = 2
	return m, s
}

func server(t *testing.T, opts ...etcdtest.Option) (*etcdtest.Server, *scene) {
	e := etcdtest.Start(t, append(opts, etcdtest.Gateway())...)
	return e, newScene(t, e.Client(t), "/mutexes/", e.Endpoint())
}

// etcdHangs stops etcd for 13 s, longer than a ticket's lease, with a holder of a and waiters of both clients.
func etcdHangs(t *testing.T, _ *scene, a, b *client) {
	m, s := cluster(t, 1)
	l := s.open(a).acquire("hang", want{wait: 30})
	one := s.queues(s.open(b), l.name, want{}, 1)
	two := s.queues(s.open(a), l.name, want{}, 2)
	m.Pause(0)
	until := time.Now().Add(13 * time.Second)
	if a := l.alive("into silence"); a.Error != "unavailable" && a.Error != "" {
		t.Errorf("alive of an etcd that hangs: %s", a.line)
	}
	time.Sleep(time.Until(until))
	m.Resume(0)
	m.WaitReady(t)
	l.mustAlive("on")
	l.lostNothing()
	l.mustRelease()
	var both sync.WaitGroup
	for _, wait := range []*call{one, two} { // in any order
		both.Go(func() {
			proctest.Must(t, wait.holds(func(*lock) error { return nil }))
		})
	}
	both.Wait()
	s.free(l.name)
}

func memberDies(t *testing.T, _ *scene, c *client) {
	m, s := cluster(t, 3)
	d := s.open(c)
	l := d.acquire("members", want{wait: 30})
	next := s.follows(c, l.name)
	for i := range 3 {
		m.Kill(i)
		// An election may take a while.
		eventually(t, fmt.Sprintf("alive without member %d", i), func() error {
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
	s.ends(next())
}

// follows makes another driver of the client wait for the lock until the returned function is called. A client without
// a queue starts to wait only then.
func (s *scene) follows(c *client, name string) (granted func() *lock) {
	d := s.open(c)
	if !c.claims("queue") {
		return func() *lock { return d.acquire(name, want{wait: 30}) }
	}
	wait := s.queues(d, name, want{}, 1)
	return wait.granted
}

// uselessMembers puts an endpoint that never serves before the only member, and behind one that dies under a hold.
func uselessMembers(t *testing.T, _ *scene, c *client) {
	m, s := cluster(t, 1)
	endpoints := map[string]string{"a learner": m.AddLearner(t)}
	for about, answer := range map[string]struct {
		status int
		body   string
	}{
		"not capable":     {http.StatusBadRequest, `{"code": 9, "message": "etcdserver: not capable"}`},
		"overloaded":      {http.StatusTooManyRequests, `{"code": 8, "message": "etcdserver: too many requests"}`},
		"a proxy's limit": {http.StatusTooManyRequests, "slow down"},
		"a proxy's page":  {http.StatusOK, "<html>welcome</html>"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		}))
		t.Cleanup(server.Close)
		endpoints[about] = server.URL
	}
	var all sync.WaitGroup
	for about, useless := range endpoints {
		all.Go(func() {
			s.ends(s.open(c, useless, s.target[0]).acquire("first "+about, want{wait: 30}))
			line := newWire(t, s.target[0])
			l := s.open(c, line.Addr, useless, s.target[0]).acquire("behind "+about, want{wait: 30})
			line.cutOff()
			l.mustAlive("on")
			s.ends(l)
		})
	}
	all.Wait()
}

// secured starts an etcd with users, of which "locks" may take locks.
func secured(t *testing.T, opts ...etcdtest.Option) (*etcdtest.Server, *scene) {
	e, s := server(t, append(opts, etcdtest.Auth())...)
	e.AddUser(t, "locks", "open sesame", "/mutexes/", etcdtest.ReadWrite)
	e.AddUser(t, "elsewhere", "open sesame", "/elsewhere/", etcdtest.ReadWrite)
	s.user, s.password = "locks", "open sesame"
	return e, s
}

func users(t *testing.T, _ *scene, c *client) {
	_, s := secured(t)
	l := s.open(c).acquire("with a user", want{try: true})
	l.mustAlive("on")
	s.ends(l)
	for _, bad := range []struct{ about, user, password string }{
		{"no right on the prefix", "elsewhere", "open sesame"},
		{"a wrong password", "locks", "wrong"},
		{"no user", "", ""},
	} {
		s.user, s.password = bad.user, bad.password
		if a := s.openAndTry(c, "refused"); a.Error != "refused" {
			t.Errorf("%s: %s, want refused", bad.about, a.line)
		}
	}
	s.free("refused")
}

// openAndTry returns the error of a client that cannot take a lock, when it opens or later.
func (s *scene) openAndTry(c *client, name string, endpoints ...string) answer {
	d := c.start(s.t)
	a := d.do(s.opening(endpoints...))
	if a.Error == "" {
		a = d.try(name)
	}
	return a
}

// loginRenewed lets the auth tokens of an idle holder and a waiter, or of an idle driver, expire.
func loginRenewed(t *testing.T, _ *scene, c *client) {
	e, s := secured(t, etcdtest.TokenTTL(2))
	d := s.open(c)
	l := d.acquire("renewed", want{try: true})
	granted := s.follows(c, l.name)
	for range 2 {
		time.Sleep(5 * time.Second)
		l.mustAlive("on")
	}
	e.AddUser(t, "another", "open sesame", "/another/", etcdtest.Read) // all tokens are old now
	l.mustAlive("on")
	time.Sleep(5 * time.Second)
	l.mustRelease()
	s.ends(granted())
}

func withTLS(t *testing.T, _ *scene, c *client) {
	e, s := server(t, etcdtest.ClientCerts())
	s.ca = e.CA().File()
	s.cert, s.key = e.CA().Issue(t, "client")
	s.ends(s.open(c).acquire("with TLS", want{try: true}))
	s.timeout = 2
	cert, key := s.cert, s.key
	s.cert, s.key = e.CA().Issue(t, "ended", time.Now().Add(-time.Minute))
	a := s.openAndTry(c, "expired")
	if c.claims("gateway") && !strings.Contains(a.Message, "etcd refuses the client certificate: it has expired") {
		t.Errorf("a client certificate that has expired: %s, want that said", a.line)
	}
	s.cert, s.key = cert, key
	s.ca = proctest.NewCA(t).File()
	a = s.openAndTry(c, "untrusted")
	trusted := strings.Contains(a.Message, "certificate") && strings.Contains(a.Message, "is not trusted")
	switch {
	case !c.claims("gateway") && a.Error == "unavailable":
	case a.Error != "refused" || !trusted:
		t.Errorf("a server of another authority: %s, want refused, and that its certificate is not trusted", a.line)
	}
	s.free("untrusted")
}

// certificatesRenewed replaces first the authority, of the server too, and then the client's certificate and key.
func certificatesRenewed(t *testing.T, s *scene, c *client) {
	old, next := proctest.NewCA(t), proctest.NewCA(t)
	end := newTLSEnd(t, strings.TrimPrefix(s.target[0], "http://"))
	end.pair.Store(new(old.Pair(t, "server")))
	s.timeout = 2
	s.ca = old.File()
	s.cert, s.key = old.Issue(t, "client")
	l := s.open(c, end.Endpoint()).acquire("renewed", want{wait: 30})
	first := end.last.Load()

	end.pair.Store(new(next.Pair(t, "server")))
	authority, err := os.ReadFile(next.File())
	proctest.Must(t, err)
	proctest.Must(t, os.WriteFile(s.ca, authority, 0o600))
	end.cut()
	l.mustAlive("another authority")
	if *end.last.Load() != *first {
		t.Error("it shows another certificate, which nobody issued")
	}

	old.Issue(t, "client")
	end.cut()
	l.mustAlive("another certificate")
	if *end.last.Load() == *first {
		t.Error("after its files were replaced, it still shows the old certificate")
	}
	s.ends(l)
}

// tlsEnd ends the TLS of connections to an etcd that has none.
type tlsEnd struct {
	*etcdtest.Proxy // before it
	pair            atomic.Pointer[tls.Certificate]
	last            atomic.Pointer[string] // the serial number of the client's certificate on the newest connection
}

func newTLSEnd(t *testing.T, target string) *tlsEnd {
	e := &tlsEnd{}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return e.pair.Load(), nil },
		ClientAuth:             tls.RequireAnyClientCert,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			e.last.Store(new(c.PeerCertificates[0].SerialNumber.String()))
			return nil
		},
	})
	proctest.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	e.Proxy = etcdtest.NewProxy(t, "https://"+listener.Addr().String())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(conn, target)
		}
	}()
	return e
}

func forward(conn net.Conn, target string) {
	defer conn.Close()
	etcd, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	go func() {
		io.Copy(etcd, conn)
		etcd.Close()
	}()
	io.Copy(conn, etcd)
}

// cut ends all connections.
func (e *tlsEnd) cut() {
	e.Cut()
	e.Heal()
}

func outOfSpace(t *testing.T, _ *scene, c *client) {
	e, s := server(t, etcdtest.Quota(8<<20))
	s.timeout = 2
	d := s.open(c)
	kept := d.acquire("kept", want{try: true})
	l := d.acquire("released", want{try: true})
	e.Fill(t, "/fill/")
	if a := l.alive("on"); a.Error != "unavailable" {
		t.Errorf("alive in a full etcd: %s, want unavailable", a.line)
	}
	a := d.try("taken")
	if a.Error != "unavailable" && a.Error != "refused" {
		t.Errorf("a try in a full etcd: %s, want unavailable", a.line)
	}
	if strings.Contains(a.Message, "did not answer") || !strings.Contains(a.Message, "space") {
		t.Errorf("a full etcd answers: %s, want a message that says that it is out of space", a.line)
	}
	s.ends(l)
	s.staysFree("taken")
	e.Drain(t, "/fill/")
	kept.mustAlive("on")
	kept.mustRelease()
	s.ends(d.acquire("taken", want{wait: 30}))
	s.free(kept.name)
}

var endpointChecks = []check{
	{name: "endpoints", rule: "gateway.md#endpoints", short: true,
		wants: "an endpoint needs no scheme, and one with a password is refused without a word of it",
		alone: formsOfEndpoints},
	{name: "a base path", rule: "gateway.md#endpoints", needs: "gateway", short: true,
		wants: "the path of an endpoint goes in front of all others", alone: basePath},
	{name: "answers that are not etcd's", rule: "gateway.md#endpoints", needs: "gateway", short: true,
		wants: "what is not etcd's JSON is no answer: the next endpoint is asked, and the error names all of them",
		alone: answersOfOthers},
}

func formsOfEndpoints(t *testing.T, s *scene, c *client) {
	s.open(c, strings.TrimPrefix(s.target[0], "http://")).acquire("no scheme", want{try: true}).mustRelease()
	a := s.openAndTry(c, "secret", strings.Replace(s.target[0], "//", "//ann:open-sesame@", 1))
	told := strings.Contains(a.line, "sesame") || strings.Contains(a.line, "ann:")
	if a.Error != "refused" || a.Message == "" || told {
		t.Errorf("an endpoint with a user and a password: %s, want refused, and neither of them", a.line)
	}
	s.free("secret")
}

func basePath(t *testing.T, s *scene, c *client) {
	server := httptest.NewServer(http.StripPrefix("/gw/etcd", proxyTo(t, s.target[0])))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	for _, path := range []string{"/gw/etcd", "/gw/etcd/"} {
		l := s.open(c, server.URL+path).acquire("base path", want{try: true})
		l.mustAlive("on")
		s.forceUnlock(l)
		l.lostAs("forced")
	}
	s.free("base path")
}

func proxyTo(t *testing.T, endpoint string) http.Handler {
	target, err := url.Parse(endpoint)
	proctest.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // a watch is a stream
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	return proxy
}

// moody is a server that forwards requests to etcd, or answers itself.
type moody struct {
	*httptest.Server
	etcd   http.HandlerFunc
	answer atomic.Value // http.HandlerFunc
}

func newMoody(t *testing.T, endpoint string) *moody {
	m := &moody{etcd: proxyTo(t, endpoint).ServeHTTP}
	m.answer.Store(m.etcd)
	m.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m.answer.Load().(http.HandlerFunc)(rw, r)
	}))
	t.Cleanup(m.Close)
	t.Cleanup(m.CloseClientConnections)
	return m
}

func says(status int, kind, text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", kind)
		rw.WriteHeader(status)
		fmt.Fprint(rw, text)
	}
}

const (
	page = "text/html"
	data = "application/json"
)

// answersOfOthers makes each of two endpoints the bad one in turn, because a client stays with the good one.
func answersOfOthers(t *testing.T, s *scene, c *client) {
	s.timeout = 3
	ends := []*moody{newMoody(t, s.target[0]), newMoody(t, s.target[0])}
	d := s.open(c, ends[0].URL, ends[1].URL)
	for i, bad := range []struct {
		about  string
		answer http.HandlerFunc
	}{
		{"a page, 404", says(404, page, "<h1>Not Found</h1>")},
		{"the gateway is switched off", says(404, "text/plain", "404 page not found\n")},
		{"a page, 401", says(401, page, "<h1>Unauthorized</h1>")},
		{"JSON, 403", says(403, data, `{"error":"forbidden"}`)},
		{"a page, 200", says(200, page, "<h1>Welcome</h1>")},
		{"JSON, 200", says(200, data, `{"status":"ok"}`)},
		{"a list, 200", says(200, data, `[]`)},
		{"nothing, 200", says(200, data, "")},
		{"a page, 502", says(502, page, "<h1>Bad Gateway</h1>")},
		{"a connection that ends", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		ends[i%2].answer.Store(bad.answer)
		ends[(i+1)%2].answer.Store(ends[0].etcd)
		a := d.do(want{try: true}.request(bad.about))
		if a.Error != "" {
			t.Errorf("%s, at the first of two endpoints: %s", bad.about, a.line)
			continue
		}
		d.must(request{"do": "release", "lock": a.Lock})
		s.free(bad.about)
	}
	ends[0].answer.Store(says(404, page, "<h1>Not Found</h1>"))
	ends[1].answer.Store(says(200, page, "<h1>Welcome</h1>"))
	a := d.try("nobody answers")
	if a.Error != "unavailable" {
		t.Errorf("no endpoint is etcd: %s, want unavailable", a.line)
	}
	for _, part := range []string{ends[0].Listener.Addr().String(), ends[1].Listener.Addr().String(), "404", "200"} {
		if !strings.Contains(a.Message, part) {
			t.Errorf("no endpoint is etcd: the message does not name %s: %s", part, a.Message)
		}
	}
	ends[0].answer.Store(ends[0].etcd)
	ends[1].answer.Store(ends[1].etcd)
	s.staysFree("nobody answers")
	d.acquire("afterwards", want{wait: 30})
}
