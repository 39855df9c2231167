package mutexdash

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
)

// run wires the program and serves until ctx ends.
func run(ctx context.Context, o options) error {
	if err := cmp.Or(o.etcd.Check(), o.web.Check()); err != nil {
		return daemon.Usage(err)
	}
	log := daemon.Logger(*o.log, os.Stderr)
	r, err := connect(o, log)
	if err != nil {
		return daemon.Usage(err)
	}
	defer r.client.Close()
	access, err := o.access.read(*o.web, log)
	if err != nil {
		return daemon.Usage(err)
	}
	if config, err := o.web.ReadConfig(); o.hsts > 0 &&
		(err != nil || config.TLS.Cert+config.TLS.Text == "") {
		return daemon.Usage(errors.Join(errors.New("--web.hsts needs a certificate in the file of --web.config.file: "+
			"if a proxy terminates TLS, configure it there"), err))
	}
	if err := r.wire(o, access, log); err != nil {
		return daemon.Usage(err)
	}
	registry := daemon.NewRegistry(namespace)
	registry.MustRegister(r.pages, r.requests, lockmetrics.NewViewCollector(namespace, r.view, r.health.Alarms),
		certificate.NewMetrics(namespace, r.certificates(o)))
	return r.serve(ctx, o, registry, log)
}

// namespace is the prefix of the metrics.
const namespace = "mutexdash"

// appearanceConfig returns the part of the configuration that depends on flags only.
func (o options) appearanceConfig() (app.Config, error) {
	config := app.Config{
		Explain: etcdconn.Explain, Now: time.Now,
		ExternalURL: o.web.ExternalURL, RoutePrefix: o.web.RoutePrefix, Environment: o.environment,
		Version: daemon.CurrentBuild().Version, Settings: o.changedFlags, HideBacktraces: o.hideBacktraces,
		MinRefresh: o.minRefresh, HSTS: o.hsts, Hosts: slices.Clone(o.hosts),
		Alertmanager: o.alertmanager,
	}
	if name, err := os.Hostname(); err == nil {
		config.Hosts = append(config.Hosts, name)
	}
	for _, text := range o.sources {
		source, err := stacktrace.ParseSourceLink(text)
		if err != nil {
			return config, err
		}
		config.Sources = append(config.Sources, source)
	}
	for _, text := range o.links {
		link, err := app.ParseLink(text)
		if err != nil {
			return config, err
		}
		config.Links = append(config.Links, link)
	}
	return config, nil
}

// serve runs the view, the pages and the probes until ctx ends.
func (r *components) serve(ctx context.Context, o options, registry *prometheus.Registry, log zerolog.Logger) error {
	ready := &daemon.Readiness{}
	ready.Add("locks", r.view.CheckListed)
	ready.Add("etcd", r.view.CheckSynced)
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	group.Add("health of etcd", r.health.Run)
	group.Add("faults of etcd", r.faults.Run)
	group.Add("view", r.view.Run)
	group.Add("locks of other libraries", r.others.Run)
	group.Add("timeline", r.pages.Run)
	if err := group.AddServer("probes and metrics", &daemon.Server{Address: o.web.OpsAddress, Flag: "--web.ops-address",
		Handler: ops.Handler(), Drain: time.Second}); err != nil {
		return err
	}
	if err := group.AddServer("pages", o.web.NewServer(r.pages)); err != nil {
		return err
	}
	return group.Run(ctx)
}
