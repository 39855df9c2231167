package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// route is a request, and the status that it gets.
type route struct {
	name    string
	method  string
	path    string // below the prefix
	status  int
	needs   string // permission
	headers []string
}

// routes are all kinds of requests, well-behaved and not.
func routes(assets string) []route {
	return []route{
		{"list", "GET", "", 200, "view", nil},
		{"list, fragment", "GET", "?fragment=rows", 200, "view", nil},
		{"list, HEAD", "HEAD", "", 200, "view", nil},
		{"lock", "GET", "lock?name=billing/invoice-run", 200, "view", nil},
		{"lock that is not held", "GET", "lock?name=x", 200, "view", nil},
		{"lock without a name", "GET", "lock", 400, "view", nil},
		{"force unlock, switched off", "GET", "unlock?name=billing/invoice-run", 403, "view", nil},
		{"POST of force unlock without a body", "POST", "unlock?name=x", 403, "view", nil},
		{"POST of force unlock, API", "POST", "api/v1/lock/force-unlock", 403, "view", nil},
		{"force unlock from another site", "POST", "unlock?name=x", 403, "view",
			[]string{"Sec-Fetch-Site", "cross-site"}},
		{"waiting", "GET", "waiting", 200, "view", nil},
		{"waiting, query", "GET", "waiting?q=owner:billing+state:gone", 200, "view", nil},
		{"owners", "GET", "?group=owner", 200, "view", nil},
		{"history", "GET", "history", 200, "view", nil},
		{"history with a bad cursor", "GET", "history?after=x", 400, "view", nil},
		{"audit", "GET", "audit", 200, "audit", nil},
		{"timeline", "GET", "timeline?window=6h", 200, "view", nil},
		{"timeline, API", "GET", "api/v1/timeline?window=6h&q=owner:billing", 200, "view", nil},
		{"timeline, API, bad query", "GET", "api/v1/timeline?q=state:held", 400, "view", nil},
		{"history, API", "GET", "api/v1/history?limit=5", 200, "view", nil},
		{"history, API, bad time", "GET", "api/v1/history?from=yesterday", 400, "view", nil},
		{"audit, API", "GET", "api/v1/audit", 200, "audit", nil},
		{"status", "GET", "status", 200, "view", nil},
		{"help", "GET", "help", 200, "", nil},
		{"icon", "GET", "icon.svg?state=alerting", 200, "", nil},
		{"icon with markup", "GET", "icon.svg?state=%3Cb", 404, "", nil},
		{"asset", "GET", "assets/" + assets + "/app.css", 200, "", nil},
		{"asset of another build", "GET", "assets/000000000000/app.css", 404, "", nil},
		{"no such page", "GET", "nothing/here", 404, "", nil},
		{"list, API", "GET", "api/v1/locks", 200, "view", nil},
		{"lock, API", "GET", "api/v1/lock?name=billing/invoice-run&include=backtrace,fields", 200, "view", nil},
		{"summary, API", "GET", "api/v1/summary", 200, "view", nil},
		{"status, API", "GET", "api/v1/status", 200, "view", nil},
		{"bad query, API", "GET", "api/v1/locks?q=state:gone", 400, "view", nil},
		{"no such page, API", "GET", "api/v1/nothing", 404, "", nil},
		{"POST to a page", "POST", "lock?name=x", 405, "view", nil},
		{"DELETE", "DELETE", "lock?name=x", 405, "view", nil},
		{"POST from another site", "POST", "lock?name=x", 403, "view", []string{"Sec-Fetch-Site", "cross-site"}},
		{"POST from another origin", "POST", "lock?name=x", 403, "view", []string{"Origin", "https://evil.example"}},
	}
}

func TestEveryResponseHasTheSecurityHeaders(t *testing.T) {
	working := busy().dashboard(t, withAudit)
	assets := fingerprint(t, working)
	unloaded := newScene()
	unloaded.fresh = protocol.Freshness{Cause: "connection refused"}
	bug := func() map[string][]metadata.Waiter { panic("a bug") }
	broken := busy().dashboard(t, func(c *app.Config) { of(c).queues = bug })

	for _, r := range routes(assets) {
		w := ask(working, r.method, "/"+r.path, r.headers...)
		if w.Code != r.status {
			t.Errorf("%s: %s /%s answers %d, want %d", r.name, r.method, r.path, w.Code, r.status)
		}
		checkHeaders(t, r, w)
	}
	for _, path := range []string{"", "api/v1/locks", "lock?name=x"} {
		checkHeaders(t, route{name: "nothing loaded", path: path}, get(unloaded.dashboard(t), "/"+path))
		w := get(broken, "/"+path)
		checkHeaders(t, route{name: "a bug", path: path}, w)
		if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "goroutine") ||
			strings.Contains(w.Body.String(), "a bug") {
			t.Errorf("a panic is answered with %d %s", w.Code, w.Body)
		}
	}
}

func checkHeaders(t *testing.T, r route, w *httptest.ResponseRecorder) {
	t.Helper()
	csp := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action " +
		"'self'; base-uri 'none'; " +
		"object-src 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types mutexdash"
	cache := "no-store"
	if strings.HasPrefix(r.path, "assets/") && w.Code == 200 {
		cache = "public, max-age=31536000, immutable"
	} else if strings.HasPrefix(r.path, "icon.svg") && w.Code == 200 {
		cache = "public, max-age=86400"
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": csp, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "X-Robots-Tag": "noindex, nofollow",
		"Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
		"Cache-Control":      cache,
	} {
		if got := w.Header().Values(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %s is %q, want %q", r.name, name, got, want)
		}
	}
	if w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%s: other sites may read the answer", r.name)
	}
	kind := w.Header().Get("Content-Type")
	switch {
	case strings.HasPrefix(r.path, "api/") && w.Code >= 400:
		checkProblem(t, r, w, kind)
	case strings.HasPrefix(r.path, "api/") && kind != "application/json":
		t.Errorf("%s: the type is %q", r.name, kind)
	case kind == "":
		t.Errorf("%s: no Content-Type", r.name)
	}
}

func checkProblem(t *testing.T, r route, w *httptest.ResponseRecorder, kind string) {
	t.Helper()
	var p struct {
		Type, Title, Code string
		Status            int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || kind != "application/problem+json" ||
		p.Status != w.Code || p.Code == "" || p.Title == "" || p.Type != "about:blank" {
		t.Errorf("%s: %q %s (%v)", r.name, kind, w.Body, err)
	}
}

// fingerprint is the part of asset URLs that changes with their content.
func fingerprint(t testing.TB, d http.Handler) string {
	t.Helper()
	for _, src := range attributes(ok(t, d, "/help"), "src") {
		if parts := strings.Split(src, "/"); len(parts) > 2 {
			return parts[len(parts)-2]
		}
	}
	t.Fatal("no script has an address")
	return ""
}

func TestExternalURLsOriginMayPost(t *testing.T) {
	d := busy().dashboard(t, func(c *app.Config) { c.ExternalURL = "https://locks.example/" })
	for origin, want := range map[string]int{"locks": http.StatusMethodNotAllowed, "evil": http.StatusForbidden} {
		if w := ask(d, "POST", "/lock?name=x", "Origin", "https://"+origin+".example"); w.Code != want {
			t.Errorf("behind a proxy that changes Host, the origin %s gets %d, want %d", origin, w.Code, want)
		}
	}
}

func TestEveryLinkWorksBelowAnyPrefix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ external, route, links, arrives string }{
		"at the root":                   {"", "", "/", "/"},
		"below a path":                  {"https://ops.example/a/b/", "", "/a/b/", "/a/b/"},
		"behind a proxy that strips it": {"https://ops.example/a/b", "/", "/a/b/", "/"},
	} {
		t.Run(name, func(t *testing.T) {
			d := busy().dashboard(t, func(config *app.Config) {
				config.ExternalURL = c.external
				config.RoutePrefix = c.route
			})
			seen := map[string]bool{}
			queue := []string{c.links}
			for len(queue) > 0 && len(seen) < 60 {
				link := queue[0]
				queue = queue[1:]
				if seen[link] {
					continue
				}
				seen[link] = true
				w := get(d, c.arrives+strings.TrimPrefix(link, c.links))
				if w.Code != http.StatusOK {
					t.Errorf("%s answers %d", link, w.Code)
				}
				if strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
					queue = append(queue, linksOf(t, w.Body.String(), c.links)...)
				}
			}
			if len(seen) < 40 {
				t.Errorf("only %d links were found", len(seen))
			}
		})
	}
}

// linksOf returns the URLs in a page; all must begin with the prefix.
func linksOf(t *testing.T, page, prefix string) []string {
	t.Helper()
	var links []string
	for _, link := range attributes(page, "href", "src", "action", "data-from", "data-icon") {
		if strings.HasPrefix(link, "#") || strings.HasPrefix(link, runbooks) {
			continue
		}
		if !strings.HasPrefix(link, prefix) {
			t.Errorf("the link %s leaves the prefix %s", link, prefix)
		}
		links = append(links, link)
	}
	return links
}

func TestRootAndPrefixRedirectToTheList(t *testing.T) {
	d := busy().dashboard(t, func(c *app.Config) { c.ExternalURL = "https://ops.example/a/b/" })
	for _, path := range []string{"/", "/a/b"} {
		if w := get(d, path); w.Code != http.StatusFound || w.Header().Get("Location") != "/a/b/" {
			t.Errorf("%s answers %d %s", path, w.Code, w.Header().Get("Location"))
		}
	}
	if w := get(d, "/a"); w.Code != http.StatusNotFound {
		t.Errorf("a path above the prefix answers %d", w.Code)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	for name, change := range map[string]func(*app.Config){
		"not http":        func(c *app.Config) { c.ExternalURL = "ftp://host/" },
		"without a host":  func(c *app.Config) { c.ExternalURL = "https:///a" },
		"with a query":    func(c *app.Config) { c.ExternalURL = "https://host/?a" },
		"with a user":     func(c *app.Config) { c.ExternalURL = "https://u:p@host/" },
		"climbing path":   func(c *app.Config) { c.RoutePrefix = "/a/../b" },
		"pattern as path": func(c *app.Config) { c.RoutePrefix = "/{a}" },
	} {
		config := newScene().config()
		change(&config)
		if _, err := dashboard.New(config); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}
