package mutexdash

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// components holds the components of a dashboard.
type components struct {
	layout  protocol.Layout
	store   *lockstore.Store
	view    *lockview.View
	health  *wiring.Health
	trouble *etcdconn.Trouble
	pages   *dashboard.Dashboard
	metrics *lockmetrics.Collector
	reload  daemon.Reload
}

// run wires the program and serves until ctx ends.
func run(ctx context.Context, o options) error {
	if err := firstError(o.etcd.Check(), o.web.Check(), o.policy.Check()); err != nil {
		return daemon.Usage(err)
	}
	log := daemon.Logger(*o.log, os.Stderr)
	requests := etcdconn.NewRequests(namespace)
	connections := etcdconn.NewConnections(*o.etcd)
	etcd, err := etcdconn.New(*o.etcd, log, append(requests.DialOptions(), connections.DialOptions()...)...)
	if err != nil {
		return daemon.Usage(err)
	}
	defer etcd.Close()
	access, err := o.access.read(o.web.ConfigFile, log)
	if err != nil {
		return daemon.Usage(err)
	}
	if config, err := readWebConfig(o.web.ConfigFile); o.hsts > 0 &&
		(err != nil || config.TLS.Cert+config.TLS.Text == "") {
		return daemon.Usage(errors.Join(errors.New("--web.hsts needs a certificate in the file of --web.config.file: "+
			"if a proxy terminates TLS, configure it there"), err))
	}
	r, err := join(o, access, etcd, log)
	if err != nil {
		return daemon.Usage(err)
	}
	registry := daemon.NewRegistry(namespace)
	registry.MustRegister(requests, r.pages, r.metrics)
	r.reload = daemon.Reload{Check: o.files, Use: connections.Renew, Log: log}
	return r.serve(ctx, o, registry, log)
}

// files returns one sentence about what is wrong with the files that a reload reads.
func (o options) files() error {
	if err := firstError(o.etcd.Check(), o.web.Check()); err != nil || o.access.permissions == "" {
		return err
	}
	_, err := readPermissions(o.access.permissions)
	return err
}

// namespace is the first word of the metrics.
const namespace = "mutexdash"

// join creates the components and gives each the functions of others that it needs.
func join(o options, access access.Config, etcd *clientv3.Client, log zerolog.Logger) (*components, error) {
	layout, err := o.locks.Layout()
	if err != nil {
		return nil, err
	}
	r := &components{layout: layout, store: lockstore.New(etcd, layout, lockstore.WithLog(log)),
		health: wiring.NewHealth(etcd, o.etcd.RequestTimeout)}
	r.view = lockview.New(layout, lockview.Source{List: r.store.List, Watch: r.store.Watch},
		lockview.Options{
			Explain: etcdconn.Explain, Log: log,
			Ended: func(lock *metadata.Record, ending *metadata.Ending) { // both are set before the view runs
				r.pages.Ended(lock, ending)
				r.metrics.Ended(lock, ending)
			},
		})
	r.trouble = wiring.Trouble(etcd, layout, r.view, log)
	shown := wiring.Metrics(namespace, *o.policy, r.view)
	shown.Alarms = r.health.Alarms
	r.metrics = lockmetrics.New(shown)
	config := r.config(o, log)
	config.Unclaimed = shown.Unclaimed
	if config.Waited, err = o.prometheus.waited(); err != nil {
		return nil, err
	}
	config.Access = access
	config.FrameAncestors = o.ancestors
	config.MinRefresh = o.minRefresh
	config.HSTS = o.hsts
	config.Hosts = o.hosts
	config.Alertmanager = o.alertmanager
	if name, err := os.Hostname(); err == nil {
		config.Hosts = append(config.Hosts, name)
	}
	for _, text := range o.sources {
		source, err := stacktrace.ParseSourceLink(text)
		if err != nil {
			return nil, err
		}
		config.Sources = append(config.Sources, source)
	}
	if o.webhook != "" {
		if config.Notify, err = webhook(o.webhook); err != nil {
			return nil, err
		}
	}
	for _, text := range o.links {
		link, err := setup.ParseLink(text)
		if err != nil {
			return nil, err
		}
		config.Links = append(config.Links, link)
	}
	if o.access.forceUnlock {
		config.ForceUnlock = r.forceUnlock
	}
	if o.access.gentle {
		config.AskHolder = r.askHolder
		config.Extend = r.extend
	}
	if o.access.acknowledge {
		config.Acknowledge = r.acknowledge
		config.Withdraw = r.withdraw
	}
	r.pages, err = dashboard.New(config)
	return r, err
}

// config joins the dashboard to the view and the store.
func (r *components) config(o options, log zerolog.Logger) setup.Config {
	view := r.view
	return setup.Config{
		Locks: view.Shown, Clock: view.Clock, Queues: view.Queues, Waiters: view.Waiters, Foreign: view.Foreign,
		Delays: view.DelaysAbout,
		Unlockers: func() []setup.Unlocker {
			var alive []setup.Unlocker
			for _, u := range view.Unlockers() {
				alive = append(alive, setup.Unlocker{Presence: u.Presence, Arrived: u.Arrived})
			}
			return alive
		},
		Members: func() []setup.Member { return members(r.health.Last()) },
		Fresh: func() locks.Freshness {
			f := view.Fresh()
			return locks.Freshness{Synced: f.Synced, Revision: f.Revision, Heard: f.Heard, Since: f.Since,
				Class: string(r.trouble.Class()), Cause: wiring.Cause(f, r.trouble)}
		},
		Document: r.store.Get, Ending: r.store.Ending, History: r.store.History, Audit: r.store.Audit,
		Relists: func() (n uint64) {
			for reason, lists := range view.Stats().Resyncs {
				if reason != lockview.ReasonPeriodic {
					n += lists
				}
			}
			return n
		},
		Explain: etcdconn.Explain, Now: time.Now,
		Policy: *o.policy, Log: log,
		ExternalURL: o.web.ExternalURL, RoutePrefix: o.web.RoutePrefix, Title: o.title, Environment: o.environment,
		Version: build.Current().Version, Layout: r.layout, Endpoints: public(o.etcd.Endpoints), Settings: o.given,
		HideBacktraces: o.hideBacktraces,
	}
}

// forceUnlock removes a hold.
func (r *components) forceUnlock(ctx context.Context, removal metadata.Removal, a protocol.Action) error {
	return outcome(r.store.ForceUnlock(ctx, removal, a))
}

// askHolder asks a holder to finish.
func (r *components) askHolder(ctx context.Context, record *metadata.Record, a protocol.Action) error {
	return outcome(r.store.AskHolder(ctx, record, a))
}

// extend gives a holder more time.
func (r *components) extend(ctx context.Context, record *metadata.Record, a protocol.Action) error {
	return outcome(r.store.Extend(ctx, record, a))
}

// acknowledge records that somebody looks at a lock.
func (r *components) acknowledge(ctx context.Context, record *metadata.Record, a protocol.Action) error {
	return outcome(r.store.Acknowledge(ctx, record, a))
}

// withdraw ends that before its time.
func (r *components) withdraw(ctx context.Context, record *metadata.Record, a protocol.Action) error {
	return outcome(r.store.WithdrawAcknowledgement(ctx, record, a))
}

// outcome is an error of the store as the dashboard knows it.
func outcome(err error) error {
	var refused *lockstore.RefusedError
	switch {
	case errors.As(err, &refused):
		return &setup.RefusedError{Why: refused.Error()}
	case errors.Is(err, lockstore.ErrUnknown):
		return fmt.Errorf("%w: %w", setup.ErrUnknown, err)
	}
	return err
}

// serve runs the view, the pages and the probes until ctx ends.
func (r *components) serve(ctx context.Context, o options, registry *prometheus.Registry, log zerolog.Logger) error {
	ready := &daemon.Readiness{}
	ready.Add("locks", func() error {
		if !r.pages.Ready() {
			return errors.New("not loaded yet: " + wiring.Cause(r.view.Fresh(), r.trouble))
		}
		return nil
	})
	wiring.Ready(ready, r.view, r.trouble)
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	front := &daemon.Server{Address: o.web.Address, ConfigFile: o.web.ConfigFile, Handler: r.pages,
		Drain: o.web.ShutdownTimeout, Log: log}
	back := &daemon.Server{Address: o.web.OpsAddress, Handler: ops.Handler(), Drain: time.Second, Log: log}
	for _, server := range []*daemon.Server{front, back} {
		address, err := server.Listen()
		if err != nil {
			return err
		}
		log.Info().Stringer("address", address).Bool("pages", server == front).Msg("listening")
	}
	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	group.Add("reload", r.reload.Run)
	group.Add("health of etcd", r.health.Run)
	group.Add("trouble with etcd", r.trouble.Run)
	group.Add("view", r.view.Run)
	group.Add("backtraces", r.pages.Run)
	group.Add("probes and metrics", back.Run)
	group.Add("pages", front.Run)
	return group.Run(ctx)
}

// members are the endpoints of etcd as pages show them.
func members(h *etcdconn.Health) []setup.Member {
	if h == nil {
		return nil
	}
	var list []setup.Member
	for _, m := range h.Members {
		shown := setup.Member{Endpoint: public([]string{m.Endpoint})[0], Version: m.Version, Size: m.Size,
			Quota: m.Quota, Problem: m.Problem}
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

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
