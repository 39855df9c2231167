package unlocker

import (
	"fmt"
	"html"
	"net/http"

	"github.com/clustermutex/unlocker/internal/daemon"
)

// withPrefix returns a handler that serves the routes below prefix.
func withPrefix(prefix string, routes http.Handler) http.Handler {
	if prefix == "" {
		return routes
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, routes))
	return mux
}

// landingPage returns the page at the address of the metrics: links to them, to the probes and to the dashboard, whose
// URL may be empty.
func landingPage(dashboard string) http.Handler {
	page := fmt.Sprintf(`<!doctype html>
<title>unlocker</title>
<h1>unlocker %s</h1>
<p>Removes distributed locks whose holders are gone.
<ul>
<li><a href="./metrics">Metrics</a>
<li><a href="./readyz">Readiness</a>: whether it works, and why not
<li><a href="./livez">Liveness</a>
`, html.EscapeString(daemon.CurrentBuild().Version))
	if dashboard != "" {
		page += `<li><a href="` + html.EscapeString(dashboard) + `">Dashboard</a>: locks, and all unlockers`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		fmt.Fprint(w, page)
	})
}
