//go:build conformance

package conformance

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// endpointChecks are about which endpoint a client asks, and what it makes of answers that are not etcd's.
func endpointChecks() []check {
	return []check{
		{name: "endpoints", rule: "gateway.md#endpoints", short: true,
			wants: "an endpoint needs no scheme, and one with a password is refused without a word of it",
			alone: formsOfEndpoints},
		{name: "a base path", rule: "gateway.md#endpoints", needs: []string{"gateway"}, short: true,
			wants: "the path of an endpoint goes in front of all others", alone: basePath},
		{name: "answers that are not etcd's", rule: "gateway.md#endpoints", needs: []string{"gateway"}, short: true,
			wants: "what is not etcd's JSON is no answer: the next endpoint is asked, and the error names all of them",
			alone: answersOfOthers},
	}
}

func formsOfEndpoints(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	s.open(c, strings.TrimPrefix(s.target[0], "http://")).acquire("no scheme", want{try: true}).mustRelease()
	d := c.start(t)
	a := d.do(s.opening(strings.Replace(s.target[0], "//", "//ann:open-sesame@", 1)))
	if a.Error == "" { // it may be noticed later
		a = d.try("secret")
	}
	told := strings.Contains(a.line, "sesame") || strings.Contains(a.line, "ann:")
	if a.Error != "refused" || a.Message == "" || told {
		t.Errorf("an endpoint with a user and a password: %s, want refused, and neither of them", a.line)
	}
	s.free("secret")
}

func basePath(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	server := httptest.NewServer(http.StripPrefix("/gw/etcd", proxyTo(t, s.target[0])))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	for _, path := range []string{"/gw/etcd", "/gw/etcd/"} {
		l := s.open(c, server.URL+path).acquire("base path", want{try: true})
		if a := l.alive("on"); a.Error != "" {
			t.Errorf("alive: %s", a.line)
		}
		s.forceUnlock(l)
		l.lostAs("forced")
	}
	s.free("base path")
}

// proxyTo passes requests on to etcd's gateway.
func proxyTo(t *testing.T, endpoint string) http.Handler {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // a watch is a stream
	proxy.ErrorLog = quiet()
	return proxy
}

// moody is a server that passes requests on to etcd, or answers itself.
type moody struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc // nil: etcd's
}

func newMoody(t *testing.T, endpoint string) *moody {
	t.Helper()
	etcd := proxyTo(t, endpoint)
	m := &moody{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		answer := m.answer
		m.mu.Unlock()
		if answer == nil {
			answer = etcd.ServeHTTP
		}
		answer(rw, r)
	}))
	t.Cleanup(m.Close)
	t.Cleanup(m.CloseClientConnections)
	return m
}

func (m *moody) answers(answer http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// says answers with this status and text.
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

// answersOfOthers lets two endpoints be the bad one in turn, as a client stays with the good one.
func answersOfOthers(t *testing.T, w *world, c *client) {
	s := w.scene(t)
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
		ends[i%2].answers(bad.answer)
		ends[(i+1)%2].answers(nil)
		a := d.do(want{try: true}.request(bad.about))
		if a.Error != "" {
			t.Errorf("%s, at the first of two endpoints: %s", bad.about, a.line)
			continue
		}
		d.must(request{"do": "release", "lock": a.Lock})
		s.free(bad.about)
	}
	ends[0].answers(says(404, page, "<h1>Not Found</h1>"))
	ends[1].answers(says(200, page, "<h1>Welcome</h1>"))
	a := d.try("nobody answers")
	if a.Error != "unavailable" {
		t.Errorf("no endpoint is etcd: %s, want unavailable", a.line)
	}
	for _, part := range []string{ends[0].Listener.Addr().String(), ends[1].Listener.Addr().String(), "404", "200"} {
		if !strings.Contains(a.Message, part) {
			t.Errorf("no endpoint is etcd: the message does not name %s: %s", part, a.Message)
		}
	}
	ends[0].answers(nil)
	ends[1].answers(nil)
	s.staysFree("nobody answers")
	eventually(t, "a lock afterwards", func() error {
		if a := d.try("afterwards"); a.Error != "" {
			time.Sleep(100 * time.Millisecond)
			return fmt.Errorf("%s", a.line)
		}
		return nil
	})
}
