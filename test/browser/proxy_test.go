//go:build browser

package browser

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// behindProxy is a stage whose pages are reached at the returned address, below a path that a proxy takes away,
// together with the Host that the browser sent. It also takes away what browsers do not say over plain HTTP: whether a
// request comes from the same site. The proxy knows the user: ann.
func behindProxy(t *testing.T) (s *stage, outside string) {
	t.Helper()
	const path = "/ops/locks"
	proxy := httptest.NewUnstartedServer(nil)
	t.Cleanup(proxy.Close)
	outside = "http://" + proxy.Listener.Addr().String() + path + "/"
	s = unlockStage(t, "--web.external-url="+outside, "--web.route-prefix=/")
	inside, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Config.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(inside) // and Host with it
		r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.Path, path), ""
		r.Out.Header.Del("Sec-Fetch-Site")
		r.Out.Header.Set("X-Forwarded-User", "ann@example.org")
	}}
	proxy.Start()
	return s, outside
}

func TestEverythingWorksBelowAPathBehindAProxyThatRewritesHost(t *testing.T) {
	t.Parallel()
	s, outside := behindProxy(t)
	b := newTab(t, s)
	s.night()
	b.open(outside + "?q=owner:billing&sort=-held")
	b.until("the list, in its colours",
		`document.querySelectorAll(".locks tbody").length === 1
			&& getComputedStyle(document.querySelector("tbody.alerting")).backgroundColor !== "rgba(0, 0, 0, 0)"`)
	b.fast()
	s.put(held, "purpose", "changed since")
	b.until("the list follows", `document.querySelector(".locks").textContent.includes("changed since")`)

	b.click(".locks .name")
	b.until("the lock", `location.pathname === "/ops/locks/lock" && document.readyState === "complete"
		&& document.querySelector(".danger a")`)
	b.click(".danger a")
	b.until("the page that asks", `location.pathname === "/ops/locks/unlock" && document.readyState === "complete"`)
	b.fill(held, "the pod is gone, see the ticket")
	b.until("the hold that is over",
		`location.pathname === "/ops/locks/lock"
			&& document.querySelector(".lock-head .released")?.textContent === "force-unlocked"`)
	if s.held(held) {
		t.Error("the lock is still held")
	}
	b.press("u")
	b.until("the same view of the list",
		`location.pathname === "/ops/locks/" && location.search === "?q=owner:billing&sort=-held"`)
}
