package mutexdash

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/diagnosis/inconsistent"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags/clusterfile"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// source says where the locks of a cluster are.
type source struct {
	setup.Cluster
	etcd   etcdconn.Settings
	layout protocol.Layout
	links  []string
}

// cluster holds the components for one cluster.
type cluster struct {
	source
	client      *clientv3.Client
	requests    *etcdconn.Requests
	connections *etcdconn.Connections
	store       *lockstore.Store
	view        *lockview.View
	health      *wiring.Health
	trouble     *etcdconn.Trouble
	metrics     *lockmetrics.Collector
	unclaimed   func() []unclaimed.Lock
}

// sourcesOf are the clusters to show: those of the file, or the one that the flags describe.
func (o options) sourcesOf() ([]source, error) {
	if o.clusters == "" {
		layout, err := o.locks.Layout()
		return []source{{etcd: *o.etcd, layout: layout, links: o.links}}, err
	}
	for _, flag := range o.given {
		if clusterfile.Describes(flag.Name) {
			return nil, fmt.Errorf("with --clusters, its file says how to reach etcd: leave out --%s and its variables",
				flag.Name)
		}
	}
	list, err := clusterfile.Read(o.clusters)
	if err != nil {
		return nil, err
	}
	var sources []source
	for _, c := range list {
		if err := c.Check(*o.etcd); err != nil {
			return nil, fmt.Errorf("the file of clusters %s: %w", o.clusters, err)
		}
		layout, err := protocol.NewLayout(c.Prefix)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source{setup.Cluster{Name: c.Name, Label: c.Label, Colour: c.Colour},
			c.Settings(*o.etcd), layout, slices.Concat(o.links, c.Links)})
	}
	return sources, nil
}

// connect makes the connection to a cluster and what reads from it. It does not contact etcd.
func connect(s source, pulse time.Duration, log zerolog.Logger) (*cluster, error) {
	if s.Name != "" {
		log = log.With().Str("cluster", s.Name).Logger()
	}
	c := &cluster{source: s, requests: etcdconn.NewRequests(namespace), connections: etcdconn.NewConnections(s.etcd)}
	var err error
	c.client, err = etcdconn.New(s.etcd, log, append(c.requests.DialOptions(), c.connections.DialOptions()...)...)
	if err != nil {
		return nil, err
	}
	c.store = lockstore.New(c.client, s.layout, lockstore.WithLog(log), lockstore.WithPulse(pulse))
	c.health = wiring.NewHealth(c.client, s.etcd.RequestTimeout, log)
	return c, nil
}

// watch makes the view of the cluster, which tells the dashboard what went.
func (c *cluster) watch(r *components, log zerolog.Logger) {
	if c.Name != "" {
		log = log.With().Str("cluster", c.Name).Logger()
	}
	c.view = lockview.New(c.layout, lockview.Source{List: c.store.List, Watch: c.store.Watch},
		lockview.Options{
			Explain: etcdconn.Explain, Log: log,
			Ended: func(lock *metadata.Record, ending *metadata.Ending) { // both are set before the view runs
				r.pages.Ended(c.Name, lock, ending)
				c.metrics.Ended(lock, ending)
			},
			Taken: func(_ *metadata.Record, w metadata.Waiter) { r.pages.Took(c.Name, w) },
		})
	c.trouble = wiring.Trouble(c.client, c.layout, c.view, log)
	shown := wiring.Metrics(namespace, func() staleness.Policy { return wiring.Fate(c.view).Policy }, c.view)
	shown.Alarms = c.health.Alarms
	c.unclaimed = shown.Unclaimed
	c.metrics = lockmetrics.New(shown)
}

// register registers the metrics of the cluster; where there are several, they say of which.
func (c *cluster) register(registry prometheus.Registerer, several bool) {
	if several {
		registry = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": c.Name}, registry)
	}
	registry.MustRegister(c.requests, c.metrics)
}

// config joins the dashboard to the view and the store of the cluster.
func (c *cluster) config(o options, shared setup.Config, log zerolog.Logger) (setup.Config, error) {
	view := c.view
	config := shared
	config.Cluster = c.Cluster
	config.Log = log
	config.Layout = c.layout
	config.Endpoints = public(c.etcd.Endpoints)
	config.View = shown{view, o.pulse, c.trouble}
	config.Store = c.store
	config.Operator = c.store
	config.Unclaimed = c.unclaimed
	config.Inconsistent = func() []inconsistent.Lock { return wiring.Inconsistent(view) }
	config.Members = func() []setup.Member { return members(c.health.Last()) }
	config.Alarm = func() string { return alarm(c.health.Last()) }
	config.Relists = func() (n uint64) {
		for reason, lists := range view.Stats().Resyncs {
			if reason != lockview.ReasonPeriodic {
				n += lists
			}
		}
		return n
	}
	for _, text := range c.links {
		link, err := setup.ParseLink(text)
		if err != nil {
			return config, err
		}
		config.Links = append(config.Links, link)
	}
	config.Enabled = access.Actions{Unlock: o.access.forceUnlock, AskAndExtend: o.access.askAndExtend,
		Acknowledge: o.access.acknowledge}
	return config, nil
}

// shown is a view that knows why it is not current.
type shown struct {
	*lockview.View
	pulse   time.Duration
	trouble *etcdconn.Trouble
}

// Fresh implements [setup.View].
func (s shown) Fresh() protocol.Freshness {
	f := s.View.Fresh()
	f.Pulse = s.pulse
	f.Class = string(s.trouble.Class())
	f.Cause = wiring.Cause(f, s.trouble)
	return f
}

// members are the endpoints of etcd as pages show them.
func members(h *etcdconn.Health) []setup.Member {
	if h == nil {
		return nil
	}
	var list []setup.Member
	for _, m := range h.Members {
		shown := setup.Member{Endpoint: public([]string{m.Endpoint})[0], Version: m.Version, Size: m.Size,
			Quota: m.Quota, Problem: cmp.Or(m.Problem, m.Outdated)}
		switch {
		case m.Problem != "":
		case m.Leader:
			shown.Role = "leader"
		case m.Learner:
			shown.Role = "learner"
		default:
			shown.Role = "follower"
		}
		list = append(list, shown)
	}
	return list
}

// alarm explains the first alarm that etcd has raised; empty if none is known.
func alarm(h *etcdconn.Health) string {
	if h == nil || len(h.Alarms) == 0 {
		return ""
	}
	return h.Alarms[0].Explain()
}

// public returns the endpoints without any user and password in them.
func public(endpoints []string) []string {
	shown := make([]string, len(endpoints))
	for i, e := range endpoints {
		if u, err := url.Parse(e); err == nil && u.Host != "" {
			e = u.Scheme + "://" + u.Host
		}
		shown[i] = e
	}
	return shown
}
