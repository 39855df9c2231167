package unlocker

import (
	"html"
	"net/http"
	"net/url"
	"strconv"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/clustermutex/unlocker/internal/daemon"
)

// below returns a handler that serves the routes below a prefix, and redirects from the prefix itself.
func below(prefix string, routes http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, routes))
	return mux
}

// landingPage returns the page at the address of the metrics: links to them, to the probes and to the dashboard, whose
// URL may be empty.
func landingPage(dashboard string, pprof bool) (http.Handler, error) {
	config := web.LandingConfig{
		Name: "unlocker", Description: "Removes distributed locks whose holders are gone",
		Version: daemon.CurrentBuild().Version, Profiling: strconv.FormatBool(pprof),
		Links: []web.LandingLinks{
			{Address: "metrics", Text: "Metrics"},
			{Address: "readyz", Text: "Readiness", Description: "whether it works, and why not"},
			{Address: "livez", Text: "Liveness"},
		},
		// Links are relative: a proxy may serve the page below another path.
		RoutePrefix: ".",
	}
	if dashboard != "" {
		config.ExtraHTML = `<p><a href="` + html.EscapeString(dashboard) + `">Dashboard</a>: locks, and the state of ` +
			`all unlockers</p>`
	}
	page, err := web.NewLandingPage(config)
	if err != nil {
		return nil, err
	}
	// The page answers only at the path of its links.
	atLinks := &http.Request{URL: &url.URL{Path: "./"}}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		page.ServeHTTP(w, atLinks)
	}), nil
}
