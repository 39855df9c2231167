package dashboard

import (
	"html/template"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/web"
)

// Dashboard serves the pages and the JSON API. It is an [http.Handler] and holds no state but what it read.
type Dashboard struct {
	config    Config
	snapshots *locks.Snapshots
	traces    traces
	reader    stacktrace.Reader
	urls      urls
	hosts     hosts
	route     string // prefix under which requests arrive
	assets    assets
	templates map[string]*template.Template
	metrics   *metrics
	rate      rate
	refusals  refusals
	tickets   chan struct{} // of the requests that are worked on
	streams   chan struct{} // of the answers that are sent while they are made
	packers   sync.Pool     // of answers
	outgoing  atomic.Int64  // bytes of answers on their way, but for small ones
	past      *history.Store
	slow      atomic.Bool // etcd answered last, but later than a page waits
	notices   chan []byte // that wait to be sent
	handler   http.Handler
}

// New returns a dashboard. It fails, with a sentence for the operator, for a configuration that contradicts itself.
func New(config Config) (*Dashboard, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	d := &Dashboard{config: config, metrics: newMetrics(config.Notify != nil), notices: make(chan []byte, maxNotices),
		reader:  stacktrace.NewReader(config.Sources),
		tickets: make(chan struct{}, maxRequests), streams: make(chan struct{}, maxStreams)}
	d.snapshots = locks.NewSnapshots(locks.Source{Locks: d.config.Locks, Queues: d.config.Queues, Policy: d.config.Policy})
	d.past = history.NewStore(history.Source{History: d.config.History, Audit: d.config.Audit, Relists: d.config.Relists,
		Policy: d.config.Policy, Log: d.config.Log})
	if err := d.prefixes(); err != nil {
		return nil, err
	}
	var err error
	if d.assets, err = loadAssets(web.Static()); err != nil {
		return nil, err
	}
	d.urls.assets = d.assets.fingerprint
	if d.templates, err = parse(web.Templates(), d.urls); err != nil {
		return nil, err
	}
	d.handler, err = d.routes()
	return d, err
}

// ServeHTTP answers a request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Ended notes a hold that went; ending is nil when its holder released it. It is quick.
func (d *Dashboard) Ended(r *metadata.Record, ending *metadata.Ending) {
	d.past.See(r, ending, d.config.Now())
}

// Ready reports whether there is anything to show. It stays true when etcd is away: the last known picture is worth most
// then.
func (d *Dashboard) Ready() bool { return d.config.Fresh().Level(d.config.Now()) != locks.Never }

func (d *Dashboard) prefixes() error {
	origin, path, err := checkExternalURL(d.config.ExternalURL)
	if err != nil {
		return err
	}
	d.urls.origin = origin
	if d.hosts, err = newHosts(origin, d.config.Hosts); err != nil {
		return err
	}
	if d.urls.prefix, err = normalPrefix(path); err != nil {
		return err
	}
	d.route = d.urls.prefix
	if d.config.RoutePrefix != "" {
		d.route, err = normalPrefix(d.config.RoutePrefix)
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
		d.fail(w, r, errMethod)
	})
	post := func(path, kind string, do action) { mux.Post(d.route+path, d.handleUnlock(kind, do)) }
	get := func(path string, need access.Permission, do action) { mux.Get(d.route+path, d.handle(need, do)) }
	get("", access.View, d.list)
	get("lock", access.View, d.lock)
	get("lock/backtrace", access.Backtrace, d.backtrace)
	get("unlock", access.View, d.unlockForm)
	post("unlock", "application/x-www-form-urlencoded", d.unlockPost)
	get("waiting", access.View, d.waiting)
	get("owners", access.View, d.owners)
	get("history", access.View, d.history)
	get("audit", access.Audit, d.audit)
	get("locks.csv", access.View, d.csv)
	get("status", access.View, d.status)
	get("help", access.Anybody, d.help)
	get("icon.svg", access.Anybody, d.icon)
	get("assets/{fingerprint}/{file}", access.Anybody, d.asset)
	get("api/v1/locks", access.View, d.locksAPI)
	get("api/v1/lock", access.View, d.lockAPI)
	get("api/v1/summary", access.View, d.summaryAPI)
	get("api/v1/history", access.View, d.historyAPI)
	get("api/v1/audit", access.Audit, d.auditAPI)
	get("api/v1/status", access.View, d.statusAPI)
	post("api/v1/lock/force-unlock", "application/json", d.unlockAPI)
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
		http.Redirect(w, r, d.urls.prefix, http.StatusFound)
		return
	}
	d.fail(w, r, errNotFound)
}
