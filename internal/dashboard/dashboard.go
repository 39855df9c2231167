package dashboard

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/internal/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/web"
)

// Dashboard serves the pages and the JSON API. It is an [http.Handler] and holds no state but what it read.
type Dashboard struct {
	site     *site.Site
	traces   *backtraces.Store
	pages    *pages.Pages
	api      *api.API
	actions  *actions.Handler
	hosts    hosts
	route    string // prefix under which requests arrive
	assets   assets
	metrics  *metrics
	tickets  chan struct{} // of the requests that are worked on
	streams  chan struct{} // of the answers that are sent while they are made
	packers  sync.Pool     // of answers
	outgoing atomic.Int64  // bytes of answers on their way, but for small ones
	handler  http.Handler
}

// New returns a dashboard. It fails, with a sentence for the operator, for a configuration that contradicts itself.
func New(config setup.Config) (*Dashboard, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	d := &Dashboard{
		site: &site.Site{Config: config,
			Snapshots: locks.NewSnapshots(locks.Source{Locks: config.Locks, Queues: config.Queues,
				Policy: config.Policy}),
			History: history.NewStore(history.Source{History: config.History, Audit: config.Audit,
				Relists: config.Relists, Policy: config.Policy, Log: config.Log})},
		traces:  backtraces.NewStore(config.Document, stacktrace.NewReader(config.Sources)),
		metrics: newMetrics(),
		tickets: make(chan struct{}, maxRequests),
		streams: make(chan struct{}, maxStreams),
	}
	if config.Waited != nil {
		d.site.Remember = trends.NewRemote(config.Waited)
	}
	d.pages = pages.New(d.site, d.traces)
	d.api = api.New(d.site, d.pages)
	d.actions = actions.New(d.site, d.traces, d.api)
	if err := d.prefixes(); err != nil {
		return nil, err
	}
	var err error
	if d.assets, err = loadAssets(web.Static()); err != nil {
		return nil, err
	}
	d.site.URLs.Assets = d.assets.fingerprint
	if d.site.Templates, err = site.ParseTemplates(web.Templates(), d.site.URLs); err != nil {
		return nil, err
	}
	d.handler, err = d.routes()
	return d, err
}

// ServeHTTP answers a request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Ended notes a hold that went; ending is nil when its holder released it. It is quick.
func (d *Dashboard) Ended(r *metadata.Record, ending *metadata.Ending) {
	d.site.History.See(r, ending, d.site.Config.Now())
}

// Ready reports whether there is anything to show. It stays true when etcd is away: the last known snapshot is worth
// most then.
func (d *Dashboard) Ready() bool {
	return d.site.Config.Fresh().Level(d.site.Config.Now()) != locks.Never
}

func (d *Dashboard) prefixes() error {
	origin, path, err := checkExternalURL(d.site.Config.ExternalURL)
	if err != nil {
		return err
	}
	d.site.URLs.Origin = origin
	if d.hosts, err = newHosts(origin, d.site.Config.Hosts); err != nil {
		return err
	}
	if d.site.URLs.Prefix, err = normalPrefix(path); err != nil {
		return err
	}
	d.route = d.site.URLs.Prefix
	if d.site.Config.RoutePrefix != "" {
		d.route, err = normalPrefix(d.site.Config.RoutePrefix)
	}
	return err
}

func (d *Dashboard) routes() (http.Handler, error) {
	protect, err := d.crossOrigin()
	if err != nil {
		return nil, err
	}
	mux := chi.NewRouter()
	mux.Use(d.headers, d.measure, d.recovery, unread, d.misdirected, d.door, protect, middleware.GetHead)
	mux.NotFound(d.lost)
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowed(mux, r.URL.Path))
		d.fail(w, r, site.ErrMethod)
	})
	get := func(path string, need access.Permission, do site.Action) { mux.Get(d.route+path, d.handle(need, do)) }
	get("", access.View, d.pages.ServeList)
	get("lock", access.View, d.pages.ServeLock)
	get("lock/backtrace", access.Backtrace, d.pages.ServeBacktrace)
	for _, o := range d.actions.All() {
		get(o.Page(), access.View, o.ServeForm)
		mux.Post(d.route+o.Page(), d.handleAction(o, "application/x-www-form-urlencoded", o.ServePost))
		mux.Post(d.route+o.API(), d.handleAction(o, "application/json", o.ServeAPI))
	}
	get("waiting", access.View, d.pages.ServeWaiting)
	get("owners", access.View, d.pages.ServeOwners)
	get("history", access.View, d.pages.ServeHistory)
	get("audit", access.Audit, d.pages.ServeAudit)
	get("locks.csv", access.View, d.api.ServeTable)
	get("status", access.View, d.pages.ServeStatus)
	get("help", access.Anybody, d.pages.ServeHelp)
	get("icon.svg", access.Anybody, d.pages.ServeIcon)
	get("assets/{fingerprint}/{file}", access.Anybody, d.asset)
	get("api/v1/locks", access.View, d.api.ServeLocks)
	get("api/v1/lock", access.View, d.api.ServeLock)
	get("api/v1/summary", access.View, d.api.ServeSummary)
	get("api/v1/history", access.View, d.api.ServeHistory)
	get("api/v1/audit", access.Audit, d.api.ServeAudit)
	get("api/v1/status", access.View, d.api.ServeStatus)
	return mux, nil
}

// allowed are the methods that the path takes.
func allowed(mux *chi.Mux, path string) string {
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

// lost answers requests that fit no route; those for the bare root or the prefix without its slash find their way.
func (d *Dashboard) lost(w http.ResponseWriter, r *http.Request) {
	if path := r.URL.Path; d.route != "/" && (path == "/" || path+"/" == d.route) && isRead(r) {
		http.Redirect(w, r, d.site.URLs.Prefix, http.StatusFound)
		return
	}
	d.fail(w, r, site.ErrNotFound)
}
