package mutexdash

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/etcdconn"
)

type components struct {
	clusters []*cluster
	pages    *dashboard.Dashboard
	reload   daemon.Reload
}

// run wires the program and serves until ctx ends.
func run(ctx context.Context, o options) error {
	if err := cmp.Or(o.etcd.Check(), o.web.Check()); err != nil {
		return daemon.Usage(err)
	}
	log := daemon.Logger(*o.log, os.Stderr)
	sources, err := o.sourcesOf()
	if err != nil {
		return daemon.Usage(err)
	}
	r := &components{}
	for _, source := range sources {
		c, err := connect(source, o.pulse, log)
		if err != nil {
			return daemon.Usage(err)
		}
		defer c.client.Close()
		r.clusters = append(r.clusters, c)
	}
	access, err := o.access.read(o.web.ConfigFile, log)
	if err != nil {
		return daemon.Usage(err)
	}
	if config, err := readWebConfig(o.web.ConfigFile); o.hsts > 0 &&
		(err != nil || config.TLS.Cert+config.TLS.Text == "") {
		return daemon.Usage(errors.Join(errors.New("--web.hsts needs a certificate in the file of --web.config.file: "+
			"if a proxy terminates TLS, configure it there"), err))
	}
	if err := r.join(o, access, log); err != nil {
		return daemon.Usage(err)
	}
	registry := daemon.NewRegistry(namespace)
	registry.MustRegister(r.pages)
	for _, c := range r.clusters {
		c.register(registry, len(r.clusters) > 1)
	}
	r.reload = daemon.Reload{Check: o.files, Log: log, Use: func() (connections int) {
		for _, c := range r.clusters {
			connections += c.connections.Renew()
		}
		return connections
	}}
	return r.serve(ctx, o, registry, log)
}

// files returns one sentence about what is wrong with the files that a reload reads.
func (o options) files() error {
	_, unusable := o.sourcesOf()
	if err := cmp.Or(o.etcd.Check(), o.web.Check(), unusable); err != nil || o.access.permissions == "" {
		return err
	}
	_, err := readPermissions(o.access.permissions)
	return err
}

// namespace is the first word of the metrics.
const namespace = "mutexdash"

// join creates the dashboard and gives it the functions of the clusters.
func (r *components) join(o options, access access.Config, log zerolog.Logger) error {
	shared, err := o.shared()
	if err != nil {
		return err
	}
	shared.Access = access
	configs := make([]setup.Config, len(r.clusters))
	for i, c := range r.clusters {
		c.watch(r, log)
		if configs[i], err = c.config(o, shared, log); err != nil {
			return err
		}
	}
	r.pages, err = dashboard.New(configs[0], configs[1:]...)
	return err
}

// shared is the part of the configuration that does not depend on a cluster.
func (o options) shared() (setup.Config, error) {
	config := setup.Config{
		Explain: etcdconn.Explain, Now: time.Now,
		ExternalURL: o.web.ExternalURL, RoutePrefix: o.web.RoutePrefix, Title: o.title, Environment: o.environment,
		Version: build.Current().Version, Settings: o.given, HideBacktraces: o.hideBacktraces,
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
	return config, nil
}

// serve runs the view, the pages and the probes until ctx ends.
func (r *components) serve(ctx context.Context, o options, registry *prometheus.Registry, log zerolog.Logger) error {
	ready := &daemon.Readiness{}
	ready.Add("locks", func() error {
		if !r.pages.Ready() {
			return errors.New("not loaded yet: " + r.causes())
		}
		return nil
	})
	if len(r.clusters) == 1 {
		wiring.Ready(ready, r.clusters[0].view, r.clusters[0].trouble)
	} else { // that one of several is away is no reason to hide the others
		ready.Add("etcd", r.allAway)
	}
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	front := &daemon.Server{Address: o.web.Address, Flag: "--web.listen-address", ConfigFile: o.web.ConfigFile,
		Handler: r.pages, Drain: o.web.ShutdownTimeout, Log: log}
	back := &daemon.Server{Address: o.web.OpsAddress, Flag: "--web.ops-address", Handler: ops.Handler(),
		Drain: time.Second, Log: log}
	for _, server := range []*daemon.Server{front, back} {
		if _, err := server.Listen(); err != nil {
			return err
		}
	}
	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	group.Add("reload", r.reload.Run)
	for _, c := range r.clusters {
		of := ""
		if len(r.clusters) > 1 {
			of = " of " + c.Name
		}
		group.Add("health of etcd"+of, c.health.Run)
		group.Add("trouble with etcd"+of, c.trouble.Run)
		group.Add("view"+of, c.view.Run)
	}
	group.Add("backtraces", r.pages.Run)
	group.Add("probes and metrics", back.Run)
	group.Add("pages", front.Run)
	return group.Run(ctx)
}

// allAway returns an error if no cluster's view is current.
func (r *components) allAway() error {
	for _, c := range r.clusters {
		if c.view.Fresh().Synced {
			return nil
		}
	}
	return errors.New("no cluster's view is current: " + r.causes())
}

// causes says why nothing was loaded.
func (r *components) causes() string {
	var all []string
	for _, c := range r.clusters {
		cause := wiring.Cause(c.view.Fresh(), c.trouble)
		if len(r.clusters) > 1 {
			cause = c.Name + ": " + cause
		}
		all = append(all, cause)
	}
	return strings.Join(all, "; ")
}
