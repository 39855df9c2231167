package dashboard_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
)

// roles are the permissions of the test users, whose names say what each may do.
const roles = `
everyone: []
users:
  viewer: [view]
  coder: [view, backtrace]
  auditor: [view, audit]
  unlocker: [view, unlock]
  chief: [view, backtrace, audit, unlock, ask, extend, acknowledge]
  catalog-only: [view, 'unlock owner:catalog']
groups:
  chiefs: [view, unlock, ask, extend, acknowledge]
  on-call: [view, unlock]
`

func parsed(t testing.TB, file string) func() *access.Permissions {
	t.Helper()
	p, err := access.ParsePermissions([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return func() *access.Permissions { return p }
}

// behindProxy is an access configuration in which a proxy at httptest's address names the caller.
func behindProxy(t testing.TB) access.Config {
	return access.Config{
		Source: access.SourceHeader, Header: "X-Forwarded-User", GroupsHeader: "X-Forwarded-Groups",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, Permissions: parsed(t, roles),
	}
}

func TestEveryRouteRequiresItsPermission(t *testing.T) {
	d := busy().dashboard(t, func(c *app.Config) { c.Access = behindProxy(t) })
	people := map[string][]string{
		"": nil, "nobody": nil, "viewer": {"view"}, "coder": {"view", "backtrace"}, "auditor": {"view", "audit"},
		"unlocker": {"view", "unlock"}, "chief": {"view", "backtrace", "audit", "unlock"},
	}
	for _, r := range routes(fingerprint(t, d)) {
		if r.method == "POST" || r.method == "DELETE" {
			continue // nothing to be seen; who may do what stands with the tests of force unlock
		}
		for who, may := range people {
			w := ask(d, r.method, "/"+r.path, append([]string{"X-Forwarded-User", who}, r.headers...)...)
			want := r.status
			switch {
			case r.needs == "" || strings.Contains(strings.Join(may, " "), r.needs):
			case who == "":
				want = http.StatusUnauthorized
			default:
				want = http.StatusForbidden
			}
			if w.Code != want {
				t.Errorf("%s for %q: %d, want %d", r.name, who, w.Code, want)
			}
			if body := w.Body.String(); want != r.status && (len(may) == 0 && strings.Contains(body, "918273") ||
				strings.Contains(body, "catalog")) {
				t.Errorf("%s for %q reveals something about the locks: %s", r.name, who, words(body))
			}
			if leads := strings.Contains(w.Body.String(), `href="/audit"`); r.path == "help" &&
				leads != slices.Contains(may, "audit") {
				t.Errorf("%q is led to the audit trail: %t", who, leads)
			}
			checkHeaders(t, r, w)
		}
	}
}

func TestReadRequestsChangeNothing(t *testing.T) {
	s := lived(t)
	d, done := operated(t, s)
	for _, r := range append(routes(fingerprint(t, d)), route{method: "GET", path: unlockLink(s, stuck)[1:]},
		route{method: "HEAD", path: unlockLink(s, stuck)[1:]}) {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			if w := ask(d, method, "/"+r.path, "X-Forwarded-User", "chief"); w.Code >= 500 || len(*done) != 0 {
				t.Errorf("%s /%s answers %d and did %v", method, r.path, w.Code, *done)
			}
		}
	}
	wantForced(t, d, 0, 0, 0, 0)
}

func TestBacktracesNeedTheirPermissionEverywhere(t *testing.T) {
	s := busy()
	d := s.dashboard(t, func(c *app.Config) { c.Access = behindProxy(t) })
	hidden := s.dashboard(t, func(c *app.Config) { c.Access, c.HideBacktraces = behindProxy(t), true })
	for _, path := range []string{"/", "/lock?name=billing/invoice-run",
		"/api/v1/lock?name=billing/invoice-run&include=backtrace,fields",
		"/api/v1/lock?name=billing/invoice-run&include=backtrace"} {
		for who, sees := range map[string]bool{"viewer": false, "chief": true} {
			w := get(d, path, "X-Forwarded-User", who)
			if got := strings.Contains(w.Body.String(), "invoice_run.rb"); got != sees && path != "/" {
				t.Errorf("%s for %s: sees the backtrace is %t", path, who, got)
			}
			if w := get(hidden, path, "X-Forwarded-User", who); strings.Contains(w.Body.String(), "invoice_run.rb") {
				t.Errorf("%s for %s: a backtrace is shown where they are switched off", path, who)
			}
		}
	}
}

func TestCallerComesFromTheConfiguredSource(t *testing.T) {
	proxy := behindProxy(t)
	leaf := func(c x509.Certificate) func(*http.Request) {
		return func(r *http.Request) { r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{&c}}} }
	}
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i+1 < len(pairs); i += 2 {
				r.Header.Add(pairs[i], pairs[i+1])
			}
		}
	}
	basic := access.Config{Source: access.SourceBasic,
		KnownUser: func(name string) bool { return name == "chief" }}
	mtls := access.Config{Source: access.SourceMTLS, Permissions: parsed(t, "everyone: [view]")}
	dashboards := map[access.Source]*dashboard.Dashboard{}
	for _, c := range []access.Config{proxy, basic, mtls} {
		dashboards[c.Source] = busy().dashboard(t, func(config *app.Config) { config.Access = c })
	}
	for name, c := range map[string]struct {
		access access.Config
		change func(*http.Request)
		who    string // empty: 401
	}{
		"a proxy says so":      {proxy, header("X-Forwarded-User", "chief"), "chief"},
		"a proxy tells groups": {proxy, header("X-Forwarded-User", "ann", "X-Forwarded-Groups", "a, on-call"), "ann"},
		"another peer says so": {proxy,
			func(r *http.Request) { header("X-Forwarded-User", "chief")(r); r.RemoteAddr = "203.0.113.9:1" }, ""},
		"another peer names the proxy": {proxy, func(r *http.Request) {
			header("X-Forwarded-User", "chief", "X-Forwarded-For", "192.0.2.1")(r)
			r.RemoteAddr = "[2001:db8::1]:1"
		}, ""},
		"a proxy says it twice": {proxy, header("X-Forwarded-User", "chief", "X-Forwarded-User", "viewer"), ""},
		"a proxy tells groups twice": {proxy, header("X-Forwarded-User", "ann", "X-Forwarded-Groups",
			"on-call", "X-Forwarded-Groups", "b"), ""},
		"a name of control characters": {proxy, header("X-Forwarded-User", "chief\u202e"), ""},
		"a name of blanks":             {proxy, header("X-Forwarded-User", " "), ""},
		"a name that is too long":      {proxy, header("X-Forwarded-User", strings.Repeat("a", 300)), ""},
		"a password was checked":       {basic, func(r *http.Request) { r.SetBasicAuth("chief", "x") }, "chief"},
		"a name that the web server does not check": {basic, func(r *http.Request) { r.SetBasicAuth("viewer", "x") },
			""},
		"no password":              {basic, func(*http.Request) {}, ""},
		"a header without a proxy": {basic, header("X-Forwarded-User", "chief"), ""},
		"a certificate with an address": {mtls,
			leaf(x509.Certificate{EmailAddresses: []string{"ann@example.org"}, DNSNames: []string{"host"}}),
			"ann@example.org"},
		"a certificate with a URI": {mtls,
			leaf(x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/ann"}}}),
			"spiffe://prod/ann"},
		"a certificate of a host":                {mtls, leaf(x509.Certificate{DNSNames: []string{"ops-1"}}), "ops-1"},
		"a certificate with a common name alone": {mtls, leaf(x509.Certificate{}), ""},
		"a certificate that nobody verified": {mtls, func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"ops-1"}}}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := dashboards[c.access.Source]
			r := httptest.NewRequest("GET", "/", nil)
			c.change(r)
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			if c.who == "" {
				if w.Code != http.StatusUnauthorized {
					t.Errorf("the answer is %d %s", w.Code, words(w.Body.String()))
				}
				return
			}
			wantWords(t, w.Body.String(), "signed in as "+c.who)
		})
	}
}

func TestContradictoryAccessSettingsAreRefused(t *testing.T) {
	never := func(string) bool { return false }
	for says, access := range map[string]access.Config{
		"trusted proxies": {Source: access.SourceHeader, Header: "X-User"},
		"no name of a header": {Source: access.SourceHeader, Header: "X User",
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		"another one for the groups": {Source: access.SourceHeader, Header: "X-User", GroupsHeader: "x-user",
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		"lets anybody be anybody": {Source: access.SourceHeader, Header: "X-User",
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("::/0")}},
		"no identity \"ldap\"": {Source: "ldap"},
		"users in the web":     {Source: access.SourceBasic},
		"other than none":      {Permissions: parsed(t, "")},
		"groups":               {Source: access.SourceBasic, KnownUser: never, Permissions: parsed(t, roles)},
	} {
		config := newScene().config()
		config.Access = access
		if _, err := dashboard.New(config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", access, err, says)
		}
	}
	for says, file := range map[string]string{
		"only view":              "users: {ann: [veiw]}",
		"without view":           "users: {ann: [unlock]}",
		"field user not":         "user: {ann: [view]}",
		"more than one":          "everyone: [view]\n---\nusers: {ann: [view]}",
		"cannot unmarshal":       "everyone: 3",
		"did not find":           "users: [\x00",
		"already defined":        "users: {ann: [view], ann: [view, unlock]}",
		"has the permission":     "groups: {a: ['']}",
		"commas separate groups": "groups: {'cn=ops,ou=groups': [view]}",
		"do not count":           "groups: {' ops': [view]}",
		`in the group ""`:        "groups: {'': [view]}",
		"be the user":            "users: {' ann': [view]}",
	} {
		if _, err := access.ParsePermissions([]byte(file)); err == nil {
			t.Errorf("%q is accepted, want %q", file, says)
		} else if !strings.Contains(err.Error(), says) && !strings.Contains(file, "\x00") {
			t.Errorf("%q: %v, want %q", file, err, says)
		}
	}
	for _, bad := range []string{"*", "10.0.0.0/40", "proxy", ""} {
		if _, err := access.ParseProxies([]string{bad}); err == nil {
			t.Errorf("the proxy %q is accepted", bad)
		}
	}
}

// A group that is written differently in the file shows in the answer and in the log.
func TestRefusalsNameTheGroupsThatCame(t *testing.T) {
	s := busy()
	d, _ := operated(t, s)
	for groups, says := range map[string]string{
		"":                               "The header X-Forwarded-Groups names no group.",
		"cn=ops,ou=groups":               `The header X-Forwarded-Groups names the groups "cn=ops", "ou=groups".`,
		" On-Call ,, \"on-call\",\u202e": `names the groups "On-Call", ""on-call"", "\u202e".`,
		strings.Repeat("g,", 30):         `"g" and 10 more.`,
	} {
		s.log.Reset()
		s.now = s.now.Add(time.Minute)
		read := get(d, "/", "X-Forwarded-User", "ann", "X-Forwarded-Groups", groups)
		did := post(d, "viewer", unlockLink(s, stuck), s.wanted(stuck), "X-Forwarded-Groups", groups)
		for _, w := range []*httptest.ResponseRecorder{read, did} {
			if page := words(w.Body.String()); w.Code != http.StatusForbidden || !strings.Contains(page, says) {
				t.Errorf("%q: %d %s, want %s", groups, w.Code, page, says)
			}
		}
		if n := strings.Count(s.log.String(), `"groups":`); n != 2 {
			t.Errorf("%q: the log has %s", groups, &s.log)
		}
	}
}

func TestPermissionsByOwnerCoverOnlyThatOwner(t *testing.T) {
	s := busy()
	d, done := operated(t, s, func(c *app.Config) {
		c.Access.Permissions = parsed(t,
			`{everyone: [view], users: {biller: [unlock owner:bill*, backtrace owner:billing], `+
				`other: [unlock owner:catalog, backtrace owner:cat*]}}`)
	})
	for who, sees := range map[string]bool{"biller": true, "other": false} {
		for _, path := range []string{"/lock?name=" + stuck,
			"/api/v1/lock?include=backtrace,fields&name=" + stuck, "/api/v1/lock?include=backtrace&name=" + stuck} {
			if got := strings.Contains(get(d, path, "X-Forwarded-User", who).Body.String(),
				"invoice_run.rb"); got != sees {
				t.Errorf("%s at %s: sees the backtrace is %t", who, path, got)
			}
		}
	}
	wantWords(t, get(d, "/lock?name="+stuck, "X-Forwarded-User", "other").Body.String(),
		"You may see backtraces of other owners' locks only", "You may force-unlock other owners' locks only")
	if asked, posted := get(d, unlockLink(s, stuck), "X-Forwarded-User", "other"), post(d, "other",
		unlockLink(s, stuck), s.wanted(stuck)); asked.Code != http.StatusForbidden ||
		posted.Code != http.StatusForbidden || len(*done) != 0 {
		t.Errorf("the lock of another owner: %d and %d, done were %v", asked.Code, posted.Code, *done)
	}
	if asked, posted := get(d, unlockLink(s, stuck), "X-Forwarded-User", "biller"), post(d, "biller",
		unlockLink(s, stuck), s.wanted(stuck)); asked.Code != http.StatusOK || posted.Code != http.StatusSeeOther ||
		len(*done) != 1 {
		t.Errorf("the lock of the owner: %d and %d %s", asked.Code, posted.Code, words(posted.Body.String()))
	}
	wantForced(t, d, 1, 0, 1, 0)
	for _, bad := range []string{"view owner:a", "audit owner:a", "unlock owner:", "unlock  owner:a",
		"unlock owner:***", "owner:a"} {
		if _, err := access.ParsePermissions([]byte(`{everyone: [view], users: {ann: ["` + bad +
			`"]}}`)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// A file with such permissions is refused; this guards the check itself.
func TestNothingIsPermittedWithoutView(t *testing.T) {
	s := busy()
	d, done := operated(t, s, func(c *app.Config) {
		c.Access.Permissions = func() *access.Permissions {
			return &access.Permissions{Users: map[string][]access.Permission{
				"half":  {access.Unlock, access.Backtrace, access.Audit, "ask owner:*"},
				"whole": {access.View, access.Unlock},
			}}
		}
	})
	for _, path := range []string{"/", "/lock?name=" + stuck, "/audit", "/history",
		"/api/v1/locks", unlockLink(s, stuck)} {
		if got := get(d, path, "X-Forwarded-User", "half"); got.Code != http.StatusForbidden {
			t.Errorf("%s answers %d to a caller without view", path, got.Code)
		}
	}
	if got := post(d, "half", unlockLink(s, stuck), s.wanted(stuck)); got.Code != http.StatusForbidden ||
		len(*done) > 0 {
		t.Errorf("a force unlock without view answers %d; done were %v", got.Code, *done)
	}
	if got := post(d, "whole", unlockLink(s, stuck), s.wanted(stuck)); got.Code != http.StatusSeeOther {
		t.Errorf("a force unlock with view answers %d", got.Code)
	}
}

func TestChangedPermissionsApplyAtOnce(t *testing.T) {
	now := parsed(t, "users: {ann: [view]}")
	d := busy().dashboard(t, func(c *app.Config) {
		c.Access = behindProxy(t)
		c.Access.Permissions = func() *access.Permissions { return now() }
	})
	for _, c := range []struct {
		file string
		want int
	}{{"users: {ann: [view]}", 200}, {"users: {}", 403}, {"everyone: [view]", 200}} {
		now = parsed(t, c.file)
		if got := get(d, "/", "X-Forwarded-User", "ann").Code; got != c.want {
			t.Errorf("%s: %d, want %d", c.file, got, c.want)
		}
	}
}
