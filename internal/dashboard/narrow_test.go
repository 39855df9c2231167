package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestLockNameCannotTraverseAConfiguredLink(t *testing.T) {
	var links []app.Link
	for _, text := range []string{"a=https://logs.example/team/{name}/log", "b=https://logs.example/{name}",
		"c=https://logs.example/x/{owner}{host}/y?q={name}", "d=https://logs.example/x/.{host}#{name}",
		"safe=https://logs.example/log?q={name}#{name}"} {
		link, err := app.ParseLink(text)
		proctest.Must(t, err)
		links = append(links, link)
	}
	for _, c := range []struct{ name, owner, host string }{{"..", ".", "."}, {".", ".", "."}, {"..", "..", ""},
		{"%2e%2e", "%2E", "."}, {"../x", "a", "b"}} {
		s := newScene()
		s.add(hold{name: c.name, owner: c.owner, host: c.host, held: time.Minute, alert: time.Hour, unlock: time.Hour})
		d := s.dashboard(t, func(config *app.Config) { config.Links = links })
		safe := false
		for _, href := range attributes(ok(t, d, "/lock?name="+url.QueryEscape(c.name)), "href") {
			if !strings.HasPrefix(href, "https:") {
				continue
			}
			path, _, _ := strings.Cut(strings.TrimPrefix(href, "https://logs.example/"), "?")
			path, _, _ = strings.Cut(path, "#")
			// as browsers read it
			for segment := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(path), "%2e", "."), "/") {
				if segment == "." || segment == ".." {
					t.Errorf("%q: the link %s climbs", c, href)
				}
			}
			safe = safe || strings.HasPrefix(href, "https://logs.example/log?q=")
		}
		if !safe {
			t.Errorf("%q: the link that names the lock in its query is gone", c)
		}
	}
}

func TestIneffectiveAttemptsUseNoQuota(t *testing.T) {
	s := busy()
	changed := true
	d, done := operated(t, s, func(c *app.Config) {
		force := c.Operator.(acts)[protocol.VerbForceUnlock]
		operates(c, func(on protocol.ActionTarget, a protocol.Action) error {
			if changed {
				s.away = errAway // when we look again
				return metadata.ErrChanged
			}
			return force(on, a)
		}, protocol.VerbForceUnlock)
	})
	try := func(who string, form url.Values, want int) {
		t.Helper()
		s.away = nil
		if w := post(d, who, unlockLink(s, stuck), form, "X-Forwarded-Groups", "on-call"); w.Code != want {
			t.Errorf("%s is answered with %d, want %d", who, w.Code, want)
		}
	}
	other := s.wanted(stuck)
	other.Set("token", "7") // of another hold
	for _, who := range []string{"u0", "u1", "u2"} {
		for range 10 {
			try(who, other, http.StatusConflict)
		}
		try(who, other, http.StatusTooManyRequests)
	}
	for i := range 40 { // etcd is asked, and does nothing
		try(fmt.Sprint("v", i), s.wanted(stuck), http.StatusConflict)
	}
	changed = false
	if try("chief", s.wanted(stuck), http.StatusSeeOther); len(*done) != 1 {
		t.Errorf("done were %v", *done)
	}
}

func TestTrustedProxiesMustBeNarrow(t *testing.T) {
	check := func(list string) error {
		proxies, err := access.ParseProxies(strings.Split(list, ","))
		if err != nil {
			return err
		}
		config := newScene().config()
		config.Access = access.Config{Source: access.SourceHeader, Header: "X-User", TrustedProxies: proxies}
		_, err = dashboard.New(config)
		return err
	}
	for _, bad := range []string{"0.0.0.0/1,128.0.0.0/1", "0.0.0.0/0", "::/0", "::/1,8000::/1", "64.0.0.0/2",
		"2000::/3", "10.0.0.0/7", "::ffff:0.0.0.0/97"} {
		if err := check(bad); err == nil || !strings.Contains(err.Error(), "lets anybody be anybody") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, good := range []string{"10.0.0.0/8", "fc00::/7", "::1", "192.0.2.1", "::ffff:10.1.0.0/112"} {
		proctest.Must(t, check(good))
	}
	proxies, err := access.ParseProxies([]string{"::ffff:192.0.2.0/120"})
	proctest.Must(t, err)
	d := busy().dashboard(t, func(c *app.Config) {
		c.Access = behindProxy(t)
		c.Access.TrustedProxies = proxies
	})
	if w := get(d, "/", "X-Forwarded-User", "viewer"); w.Code != http.StatusOK {
		t.Errorf("a network of IPv4 addresses that is written as IPv6 is not the same: %d", w.Code)
	}
}

func TestSensitiveFlagsAreForAuditorsOnly(t *testing.T) {
	s := busy()
	s.settings = []app.Setting{{Name: "web.environment", Value: "prod-eu", Public: true},
		{Name: "web.trusted-proxies", Value: "10.1.2.0/24"}}
	d := s.dashboard(t, func(c *app.Config) { c.Access = behindProxy(t) })
	for who, sees := range map[string]bool{"viewer": false, "unlocker": false, "auditor": true} {
		page := words(get(d, "/status", "X-Forwarded-User", who).Body.String())
		if strings.Contains(page, "10.1.2.0") != sees || !strings.Contains(page, "web.environment prod-eu") {
			t.Errorf("%s sees %s", who, page)
		}
	}
	if page := words(ok(t, s.dashboard(t), "/status")); strings.Contains(page, "10.1.2.0") {
		t.Errorf("an anonymous user sees %s", page)
	}
	s.fresh.HeardAt = s.now.Add(-time.Hour)
	for who, told := range map[string]bool{"nobody": false, "viewer": true} {
		if page := words(get(d, "/help", "X-Forwarded-User", who).Body.String()); strings.Contains(page,
			"etcd has not answered") != told {
			t.Errorf("%s sees the state of etcd: %v", who, !told)
		}
	}
}

func TestOnlyOwnHostsAreServed(t *testing.T) {
	s := busy()
	named := s.dashboard(t, func(c *app.Config) {
		c.ExternalURL = "https://locks.example:8443/"
		c.Hosts = []string{"mutexdash.locks.svc", "Ops-1"}
	})
	bare := s.dashboard(t, func(c *app.Config) { c.Hosts = nil })
	for host, c := range map[string]struct{ named, bare int }{
		"locks.example": {200, 421}, "locks.example:8443": {200, 421}, "LOCKS.example.:9": {200, 421},
		"mutexdash.locks.svc": {200, 421}, "ops-1:8080": {200, 421}, "127.0.0.1": {200, 200},
		"127.0.0.1:8080": {200, 200}, "[::1]:8080": {200, 200}, "[::1]": {200, 200}, "192.0.2.7:80": {200, 200},
		"[fe80::1%25eth0]:80": {200, 200}, "localhost": {200, 200}, "localhost:8080": {200, 200},
		"LocalHost": {200, 200}, "": {200, 200}, "rebound.evil.example": {421, 421},
		"rebound.evil.example:8080": {421, 421}, "locks.example.evil.example": {421, 421},
		"evil-locks.example": {421, 421}, "127.0.0.1.evil.example": {421, 421}, "localhost.evil.example": {421, 421},
		"1.2.3.4.5": {421, 421}, "0x7f000001": {421, 421}, "a@localhost": {421, 421}, "evil.example:80:80": {421, 421},
	} {
		for _, path := range []string{"/", "/api/v1/locks", "/help", "/nothing"} {
			for d, want := range map[*dashboard.Dashboard]int{named: c.named, bare: c.bare} {
				w := get(d, path, "Host", host)
				const misdirected = http.StatusMisdirectedRequest
				if refused := w.Code == misdirected; refused != (want == misdirected) {
					t.Errorf("%q, %s: the answer is %d, want %d", host, path, w.Code, want)
				}
				if body := w.Body.String(); w.Code == http.StatusMisdirectedRequest &&
					(!strings.Contains(body, "--web.external-url") || !strings.Contains(body, "--web.allowed-hosts") ||
						strings.Contains(body, "918273")) {
					t.Errorf("%q, %s: the answer is %s", host, path, body)
				}
			}
		}
	}
	for _, bad := range []string{"*", "*.example", "https://a", "a/b", "a b", "", "a:80"} {
		config := newScene().config()
		config.Hosts = []string{bad}
		if _, err := dashboard.New(config); err == nil || !strings.Contains(err.Error(), "name of a host") {
			t.Errorf("the host %q: %v", bad, err)
		}
	}
}

func TestRegexpIsLimitedByCompiledSize(t *testing.T) {
	d := busy().dashboard(t)
	for _, pattern := range []string{`(.?){999}z$`, `(?:.?){200}`, `[a-z]{400}`, `((a{10}){10}){9}`} {
		q := url.QueryEscape("name:/" + pattern + "/")
		wantWords(t, ok(t, d, "/?q="+q), "the regular expression is too costly")
		if w := get(d, "/api/v1/locks?q="+q); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(),
			"too costly") {
			t.Errorf("the API answers %s with %d %s", pattern, w.Code, w.Body)
		}
	}
	uuids := `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	for _, pattern := range []string{uuids, `(?i)^(billing|drm)/.*-[0-9]{1,9}$`} {
		if w := get(d, "/api/v1/locks?q="+url.QueryEscape("name:/"+pattern+"/")); w.Code != http.StatusOK {
			t.Errorf("the API answers %s with %d %s", pattern, w.Code, w.Body)
		}
	}
}

// longNames is a scene in which a costly expression takes far longer than any limit.
func longNames() *scene {
	s := crowd(20_000)
	for i, r := range s.locks {
		r.Name = fmt.Sprintf("%06d/", i) + strings.Repeat("billing/invoice-", 30)
	}
	return s
}

// costly is below the limit of a regular expression, but not by much; n makes it a new one.
func costly(n int) string { return "/?q=" + url.QueryEscape(fmt.Sprintf("name:/(?:.?){140}%d$/", n)) }

func TestSlowSearchIsStopped(t *testing.T) {
	t.Parallel()
	d := longNames().dashboard(t)
	ok(t, d, "/")
	begin := time.Now()
	var readers sync.WaitGroup
	for range 3 { // two at once, and one waits for them
		readers.Go(func() {
			if w := get(d, costly(2)); w.Code != http.StatusServiceUnavailable ||
				!strings.Contains(words(w.Body.String()), "The search took too long") {
				t.Errorf("the answer is %d %s", w.Code, words(w.Body.String()))
			}
		})
	}
	readers.Wait()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the search took %v", took)
	}
	ok(t, d, "/")
}

func TestOtherSitesMayOnlyLinkHere(t *testing.T) {
	d := busy().dashboard(t)
	for name, c := range map[string]struct {
		site, mode, dest string
		status           int
	}{
		"typed or bookmarked":   {"none", "navigate", "document", 200},
		"a link of our own":     {"same-origin", "navigate", "document", 200},
		"our own script":        {"same-origin", "cors", "empty", 200},
		"a program":             {"", "", "", 200},
		"a link from a chat":    {"cross-site", "navigate", "document", 200},
		"an image elsewhere":    {"cross-site", "no-cors", "image", 403},
		"a script elsewhere":    {"cross-site", "cors", "empty", 403},
		"a script of a sibling": {"same-site", "no-cors", "script", 403},
		"a frame elsewhere":     {"cross-site", "navigate", "iframe", 403},
		"an object elsewhere":   {"cross-site", "navigate", "object", 403},
	} {
		for _, path := range []string{"/", "/?q=name:/x/", "/lock?name=" + stuck, "/api/v1/locks"} {
			if w := get(d, path, "Sec-Fetch-Site", c.site, "Sec-Fetch-Mode", c.mode, "Sec-Fetch-Dest",
				c.dest); w.Code != c.status {
				t.Errorf("%s: GET %s answers %d, want %d", name, path, w.Code, c.status)
			}
		}
	}
}

func TestSearchesEndWithTheirReader(t *testing.T) {
	s := lived(t)
	d := s.dashboard(t, withAudit)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{"/?q=name:/x/", "/api/v1/locks?q=name:/x/", "/history?q=name:/x/",
		"/audit?q=name:/x/", "/waiting?q=name:/x/",
		"/api/v1/history?q=name:/x/", "/api/v1/timeline?q=name:/x/", "/api/v1/audit?q=name:/x/"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.SetBasicAuth("ann", "x")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("GET %s is answered with %d though its reader has left", path, w.Code)
		}
	}
}

func TestViewersSeeConsistentSnapshotsWhileLocksChange(t *testing.T) {
	const held = 100
	s := crowd(held)
	change := func() { // all locks at once, from one revision to the next
		s.change(func() {
			s.tick(2 * time.Second)
			s.revision++
			s.locks = slices.Clone(s.locks)
			for i, r := range s.locks {
				changed := *r
				changed.Revision = s.revision
				changed.Owner = fmt.Sprint("owner-", s.revision)
				s.locks[i] = &changed
			}
		})
	}
	change()
	d := s.dashboard(t)
	var viewers sync.WaitGroup
	for viewer := range 4 {
		viewers.Go(func() {
			for i := range 6 {
				change()
				data, _ := fetch[[]lock](t, d, "/api/v1/locks?limit=1000&fields=owner&sort="+
					[]string{"urgency", "owner", "-held"}[(viewer+i)%3])
				owners := map[any]bool{}
				for _, l := range data {
					owners[l["owner"]] = true
				}
				if len(data) != held || len(owners) != 1 {
					t.Errorf("a viewer sees %d locks of %d revisions", len(data), len(owners))
				}
				if w := get(d, "/?q=tenant"); w.Code != http.StatusOK {
					t.Errorf("the list answers %d", w.Code)
				}
			}
		})
	}
	viewers.Wait()
}
