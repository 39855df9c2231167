// Package dashboard is the page and the JSON API that answer, at 3 am: which lock is stuck, who holds it, what for, and
// what happens next.
//
// A request travels one way. authenticate.go identifies the caller and makes the request one value: caller, time,
// freshness, snapshot. What the caller may do is checked before the handler runs (answer.go). Package locks filters
// and sorts the snapshot; a struct is filled from it and becomes HTML (packages pages and actions) or JSON (package
// api). No list of locks reads etcd; only the page of one lock does, for its backtrace and its keys, and falls back to
// the snapshot when etcd is away.
//
// What operators do (package actions) is one transaction each, fenced to the hold that the person saw. Package
// etcdread reads ended holds from etcd; releases, which leave no trace there, it keeps as the dashboard saw them.
//
// Everything that comes from a record is hostile until shown: names travel in queries only, text passes through
// internal/text, html/template escapes the rest, every response carries the headers of headers.go, errors included.
package dashboard

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/web"
)

// Dashboard serves the pages and the JSON API. It is an [http.Handler] and holds no state but what it read.
type Dashboard struct {
	*metrics
	app          *app.App
	pages        *pages.Pages
	api          *api.API
	actions      *actions.Handler
	hosts        hosts
	route        string // prefix under which requests arrive
	assets       assets
	requestSlots chan struct{} // of concurrent requests
	gzipWriters  sync.Pool     // of answers
	outgoing     atomic.Int64  // bytes of answers on their way, but for small ones
	handler      http.Handler
}

// New returns a dashboard. It fails, with a sentence for the operator, for a configuration that contradicts itself.
func New(config app.Config) (*Dashboard, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	d := &Dashboard{requestSlots: make(chan struct{}, maxRequests)}
	urls, err := d.readURLs(&config)
	if err != nil {
		return nil, err
	}
	if d.assets, err = loadAssets(web.Static()); err != nil {
		return nil, err
	}
	urls.Assets = d.assets.fingerprint
	templates, err := app.ParseTemplates(web.Templates(), urls)
	if err != nil {
		return nil, err
	}
	d.build(config, urls, templates)
	d.metrics = newMetrics(d.actions)
	d.handler, err = d.routes()
	return d, err
}

func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

func (d *Dashboard) readURLs(config *app.Config) (urls app.URLs, err error) {
	var path string
	if urls.Origin, path, err = checkExternalURL(config.ExternalURL); err != nil {
		return urls, err
	}
	if d.hosts, err = newHosts(urls.Origin, config.Hosts); err != nil {
		return urls, err
	}
	if urls.Prefix, err = normalPrefix(path); err != nil {
		return urls, err
	}
	d.route = urls.Prefix
	if config.RoutePrefix != "" {
		d.route, err = normalPrefix(config.RoutePrefix)
	}
	urls.Route = d.route
	return urls, err
}

func (d *Dashboard) routes() (http.Handler, error) {
	protect, err := d.crossOrigin()
	if err != nil {
		return nil, err
	}
	mux := chi.NewRouter()
	mux.Use(d.headers, d.measure, d.recovery, closeUnreadBody, d.checkHost, d.authenticate, protect, middleware.GetHead)
	mux.NotFound(d.notFound)
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowedMethods(mux, r.URL.Path))
		d.fail(w, r, app.ErrMethod)
	})
	get := func(path string, need access.Permission, do app.HandlerFunc) {
		mux.Get(d.route+path, d.handle(need, do))
	}
	get("", access.View, d.pages.ServeList)
	get("lock", access.View, d.pages.ServeLock)
	get("api/v1/lock", access.View, d.api.ServeLock)
	for _, o := range d.actions.Operations {
		get(o.Page(), access.View, o.ServeForm)
		mux.Post(d.route+o.Page(), d.handleAction(o, formType, o.ServePost))
		mux.Post(d.route+o.API(), d.handleAction(o, jsonType, o.ServeAPI))
	}
	get("waiting", access.View, d.pages.ServeWaiting)
	get("timeline", access.View, d.pages.ServeTimeline)
	get("history", access.View, d.pages.ServeHistory)
	get("audit", access.Audit, d.pages.ServeAudit)
	get("status", access.View, d.pages.ServeStatus)
	get("help", access.Anybody, d.pages.ServeHelp)
	get("icon.svg", access.Anybody, d.pages.ServeIcon)
	get("assets/{fingerprint}/{file}", access.Anybody, d.asset)
	get("api/v1/locks", access.View, d.api.ServeLocks)
	get("api/v1/summary", access.View, d.api.ServeSummary)
	get("api/v1/timeline", access.View, d.api.ServeTimeline)
	get("api/v1/history", access.View, d.api.ServeHistory)
	get("api/v1/audit", access.Audit, d.api.ServeAudit)
	get("api/v1/status", access.View, d.api.ServeStatus)
	return mux, nil
}

// allowedMethods returns the Allow header of a path.
func allowedMethods(mux *chi.Mux, path string) string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if mux.Match(chi.NewRouteContext(), method, path) {
			methods = append(methods, method)
		}
	}
	return strings.Replace(strings.Join(methods, ", "), http.MethodGet, "GET, HEAD", 1)
}

// isRead reports whether the request asks for something and changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// notFound answers requests that match no route. It redirects the bare root and the prefix without its slash.
func (d *Dashboard) notFound(w http.ResponseWriter, r *http.Request) {
	if path := r.URL.Path; d.route != "/" && (path == "/" || path+"/" == d.route) && isRead(r) {
		http.Redirect(w, r, d.app.URLs.Prefix, http.StatusFound)
		return
	}
	d.fail(w, r, app.ErrNotFound)
}

func (d *Dashboard) build(config app.Config, urls app.URLs, templates app.Templates) {
	d.app = &app.App{Config: config, URLs: urls, Templates: templates,
		History: etcdread.NewHistory(config.Store, config.Relists, config.Log),
		Traces:  stacktrace.NewParser(config.Sources)}
	d.pages = pages.New(d.app)
	d.api = api.New(d.app, d.pages)
	d.actions = actions.New(d.app, d.pages, d.api)
}

// Ended records a hold that has ended; ending is nil if the holder released it. It does not block.
func (d *Dashboard) Ended(r *metadata.Record, ending *metadata.Ending) {
	d.app.Intervals.AddHold(d.app.History.AddEnded(r, ending, d.app.Config.Now()))
}

// Acquired records a waiter that got its lock. It does not block.
func (d *Dashboard) Acquired(w metadata.Waiter) { d.app.Intervals.AddAcquired(&w, d.app.Config.Now()) }

const observeInterval = 3 * time.Second

// Run observes queues and the watch for the timeline, until ctx ends. The pages work without it.
func (d *Dashboard) Run(ctx context.Context) error {
	for {
		now := d.app.Config.Now()
		fresh := d.app.Fresh()
		d.app.History.Observe(now, fresh)
		if fresh.Level(now) == locks.Live {
			d.app.Intervals.UpdateQueues(d.app.Config.Snapshots.Current(now, fresh).Queues, now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(observeInterval):
		}
	}
}
