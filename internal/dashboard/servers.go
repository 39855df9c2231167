package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// server answers requests about one cluster, or about several together. That of a cluster does not know that there are
// others.
type server struct {
	site    *site.Site
	traces  *backtraces.Store
	pages   *pages.Pages
	api     *api.API
	actions *actions.Handler // nil for several: an action is about one lock of one cluster
}

// checkAll fills the gaps of the configurations and refuses what cannot work. The file of clusters was
// checked when it was read.
func checkAll(all []setup.Config) error {
	var names []string
	for i := range all {
		c := all[i].Cluster
		if c.Colour != "" && !slices.Contains(setup.Colours(), c.Colour) {
			return fmt.Errorf("dashboard: cluster %q: there is no colour %q: %s", c.Name, c.Colour,
				strings.Join(setup.Colours(), ", "))
		}
		if c.Name != "" {
			names = append(names, c.Name)
		}
	}
	for i := range all {
		all[i].Access.Clusters = names
		if err := all[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// build makes the server of each cluster, and that of all together.
func (d *Dashboard) build(all []setup.Config, templates site.Templates) {
	if len(all) == 1 {
		d.server = *newServer(all[0], d.urls, templates)
		return
	}
	site.Colour(all)
	front := &site.Site{Config: together(all), URLs: d.urls, Templates: templates}
	traces := map[string]*backtraces.Store{}
	for _, config := range all {
		c := newServer(config, d.urls.In(config.Cluster.Name), templates)
		d.clusters = append(d.clusters, c)
		front.Parts = append(front.Parts, c.site)
		traces[config.Cluster.Name] = c.traces
	}
	d.server = server{site: front, traces: backtraces.Together(stacktrace.NewReader(all[0].Sources), traces)}
	d.pages = pages.New(d.site, d.traces)
	d.api = api.New(d.site, d.pages)
}

func newServer(config setup.Config, u site.URLs, templates site.Templates) *server {
	if u.Cluster != "" {
		config.Log = config.Log.With().Str("cluster", u.Cluster).Logger()
	}
	c := &server{
		site: &site.Site{Config: config, URLs: u, Templates: templates,
			Snapshots: locks.NewSnapshots(locks.Source{Locks: config.View.Shown, Queues: config.View.Queues,
				Fate: config.Fate, Cluster: u.Cluster}),
			History: history.NewStore(history.Source{History: config.Store.History, Audit: config.Store.Audit,
				Relists: config.Relists, Log: config.Log, Cluster: u.Cluster})},
		traces: backtraces.NewStore(config.Store.Get, stacktrace.NewReader(config.Sources)),
	}
	c.pages = pages.New(c.site, c.traces)
	c.api = api.New(c.site, c.pages)
	c.actions = actions.New(c.site, c.traces, c.api)
	return c
}

// together is the configuration of what shows several clusters: how pages look is as in the first one, and what is
// known of locks is known where it is for one of them.
func together(all []setup.Config) setup.Config {
	front := all[0]
	front.Cluster = setup.Cluster{}
	front.Links = nil
	front.Endpoints = nil
	front.View = inFront{front.View}
	front.Members = func() []setup.Member { return nil }
	for i := range all {
		front.Endpoints = append(front.Endpoints, all[i].Endpoints...)
	}
	return front
}

// inFront is the view of what shows several clusters: what is in one of them is for the parts of a request, which know
// what the caller may see.
type inFront struct{ setup.View }

func (inFront) Unlockers() []protocol.Unlocker { return nil }

func (inFront) Foreign() ([]string, int) { return nil, 0 }

func (d *Dashboard) servers() []*server {
	if d.clusters == nil {
		return []*server{&d.server}
	}
	return d.clusters
}

// path is where the locks of the cluster are, below the prefix.
func (c *server) path() string {
	if c.site.URLs.Cluster == "" {
		return ""
	}
	return site.ClusterPath + c.site.URLs.Cluster + "/"
}

// clusterRoutes are the addresses of what belongs to one of several clusters. At those without a cluster, a lock is
// found where only one has it.
func (d *Dashboard) clusterRoutes(mux *chi.Mux) {
	for _, c := range d.clusters {
		d.lockRoutes(mux, c)
		mux.Get(d.route+c.path(), d.handleIn(c, access.View, func(r *site.Request) (site.Answer, error) {
			return site.Redirect(d.site.URLs.To("", "q", "cluster:"+r.Site.URLs.Cluster)), nil
		}))
		mux.Get(d.route+c.path()+"status", d.handleIn(c, access.View, c.pages.ServeStatus))
		mux.Get(d.route+c.path()+"api/v1/status", d.handleIn(c, access.View, c.api.ServeStatus))
	}
	pagesOf := []string{"lock", "lock/backtrace"}
	for _, o := range d.clusters[0].actions.Operations {
		pagesOf = append(pagesOf, o.Page())
		mux.Post(d.route+o.Page(), d.handle(access.View, whichCluster))
		mux.Post(d.route+o.API(), d.handle(access.View, whichCluster))
	}
	for _, path := range pagesOf {
		mux.Get(d.route+path, d.handle(access.View, func(r *site.Request) (site.Answer, error) {
			return d.pages.ServeWhich(r, path)
		}))
	}
	mux.Get(d.route+"api/v1/lock", d.handle(access.View, d.lockOfOne))
}

// bookmarks lead from the addresses of one of several clusters to those of the only one, if it has a name.
func (d *Dashboard) bookmarks(mux *chi.Mux) {
	name := d.site.Config.Cluster.Name
	if name == "" {
		return
	}
	paths := []string{"", "lock", "lock/backtrace", "status", "api/v1/lock", "api/v1/status"}
	for _, o := range d.actions.Operations {
		paths = append(paths, o.Page())
	}
	for _, path := range paths {
		to := d.site.URLs.To(path)
		mux.Get(d.route+site.ClusterPath+name+"/"+path, d.handle(access.View,
			func(r *site.Request) (site.Answer, error) {
				if r.URL.RawQuery == "" {
					return site.Redirect(to), nil
				}
				return site.Redirect(to + "?" + r.URL.RawQuery), nil
			}))
	}
}

// lockOfOne answers a program that does not say which cluster it means.
func (d *Dashboard) lockOfOne(r *site.Request) (site.Answer, error) {
	name, err := site.NameOf(r)
	if err != nil {
		return site.Answer{}, err
	}
	part, ok := r.WhichCluster(name, r.URL.Query().Get("hold"))
	if !ok {
		return whichCluster(r)
	}
	for _, c := range d.clusters {
		if c.site == part.Site {
			return c.api.ServeLock(part)
		}
	}
	return site.Answer{}, errors.New("a cluster without a server")
}

// whichCluster refuses a request that does not say which cluster it means.
func whichCluster(r *site.Request) (site.Answer, error) {
	return site.Answer{}, r.ErrWhichCluster("")
}

// Ended notes a hold that went; ending is nil when its holder released it. It is quick.
func (d *Dashboard) Ended(cluster string, r *metadata.Record, ending *metadata.Ending) {
	s := d.of(cluster).site
	s.Intervals.Saw(s.History.See(r, ending, s.Config.Now()))
}

// Took notes a waiter that got its lock. It is quick.
func (d *Dashboard) Took(cluster string, w metadata.Waiter) {
	s := d.of(cluster).site
	s.Intervals.Took(&w, s.Config.Now())
}

// of is the server of a cluster; its name does not count where there is only one.
func (d *Dashboard) of(cluster string) *server {
	i := slices.IndexFunc(d.clusters, func(c *server) bool { return c.site.URLs.Cluster == cluster })
	if i < 0 {
		return &d.server
	}
	return d.clusters[i]
}

// Ready reports whether there is anything to show, of one cluster at least. It stays true when etcd is away: the last
// known snapshot is worth most then.
func (d *Dashboard) Ready() bool {
	return slices.ContainsFunc(d.servers(), func(c *server) bool {
		return c.site.Fresh().Level(c.site.Config.Now()) != locks.Never
	})
}

var _ http.Handler = (*Dashboard)(nil)

const runEvery = 3 * time.Second

// Run fetches what pages may need ahead of them, until ctx ends. The pages work without it.
func (d *Dashboard) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, c := range d.servers() {
		running.Go(func() { c.fetch(ctx) })
	}
	running.Wait()
	return nil
}

// fetch fetches what pages about a cluster may need.
func (c *server) fetch(ctx context.Context) {
	for {
		now := c.site.Config.Now()
		fresh := c.site.Fresh()
		c.site.History.Observe(now, fresh)
		live := fresh.Level(now) == locks.Live
		if live {
			c.site.Intervals.Look(c.site.Config.View.Queues(), now)
		}
		if !c.site.Config.HideBacktraces && live {
			c.traces.Fetch(ctx, c.site.SnapshotAt(now, c.site.Config.View.Clock(), fresh))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(runEvery):
		}
	}
}
