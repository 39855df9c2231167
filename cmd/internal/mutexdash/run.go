package mutexdash

import (
	"context"
	"errors"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// run joins the rooms and serves until ctx ends.
func run(ctx context.Context, o options) error {
	if err := firstError(o.etcd.Check(), o.web.Check(), o.policy.Check()); err != nil {
		return daemon.Usage(err)
	}
	layout, err := o.locks.Layout()
	if err != nil {
		return daemon.Usage(err)
	}
	log := daemon.Logger(*o.log, os.Stderr)
	requests := etcdconn.NewRequests("mutexdash")
	etcd, err := etcdconn.New(*o.etcd, log, requests.DialOption())
	if err != nil {
		return daemon.Usage(err)
	}
	defer etcd.Close()
	store := lockstore.New(etcd, layout, lockstore.WithLog(log))
	view := lockview.New(layout, lockview.Source{List: store.List, Watch: store.Watch},
		lockview.Options{Explain: etcdconn.Explain, Log: log})
	pages, err := dashboard.New(config(o, layout, store, view, log))
	if err != nil {
		return daemon.Usage(err)
	}
	return serve(ctx, o, view, pages, log, requests, pages)
}

// config joins the dashboard to the view and the store.
func config(o options, layout metadata.Layout, store *lockstore.Store, view *lockview.View, log zerolog.Logger) dashboard.Config {
	return dashboard.Config{
		Locks: view.Locks, Clock: view.Clock, Queues: view.Queues, Waiters: view.Waiters, Foreign: view.Foreign,
		Unlockers: func() []dashboard.Unlocker {
			var alive []dashboard.Unlocker
			for _, u := range view.Unlockers() {
				alive = append(alive, dashboard.Unlocker{Presence: u.Presence, Arrived: u.Arrived})
			}
			return alive
		},
		Fresh: func() dashboard.Freshness {
			f := view.Fresh()
			return dashboard.Freshness{Synced: f.Synced, Revision: f.Revision, Heard: f.Heard, Since: f.Since, Cause: f.Cause}
		},
		Document: store.Get, Ending: store.Ending, Explain: etcdconn.Explain, Now: time.Now,
		Policy: *o.policy, Log: log,
		ExternalURL: o.web.ExternalURL, RoutePrefix: o.web.RoutePrefix, Title: o.title, Environment: o.environment,
		Version: daemon.BuildInfo().Version, Layout: layout, Endpoints: public(o.etcd.Endpoints), HideBacktraces: o.hideBacktraces,
	}
}

// serve runs the view, the pages and the probes until ctx ends.
func serve(ctx context.Context, o options, view *lockview.View, pages *dashboard.Dashboard, log zerolog.Logger, metrics ...prometheus.Collector) error {
	ready := &daemon.Readiness{}
	ready.Add("locks", func() error {
		if !pages.Ready() {
			return errors.New("not loaded yet: " + view.Fresh().Cause)
		}
		return nil
	})
	registry := daemon.NewRegistry("mutexdash")
	registry.MustRegister(metrics...)
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	front := &daemon.Server{Address: o.web.Address, ConfigFile: o.web.ConfigFile, Handler: pages, Drain: o.web.ShutdownTimeout, Log: log}
	back := &daemon.Server{Address: o.web.OpsAddress, Handler: ops.Handler(), Drain: time.Second, Log: log}
	for _, server := range []*daemon.Server{front, back} {
		address, err := server.Listen()
		if err != nil {
			return err
		}
		log.Info().Stringer("address", address).Bool("pages", server == front).Msg("listening")
	}
	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	group.Add("view", view.Run)
	group.Add("backtraces", pages.Run)
	group.Add("probes and metrics", back.Run)
	group.Add("pages", front.Run)
	return group.Run(ctx)
}

// public are the endpoints as anybody may see them, without a user or password that was written into one.
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
