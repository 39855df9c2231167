package unlocker

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// run wires the program and runs it until ctx ends.
func run(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	log := daemon.Logger(*o.log, os.Stderr)
	requests := etcdconn.NewRequests(namespace)
	connections := etcdconn.NewConnections(*o.etcd)
	etcd, err := etcdconn.New(*o.etcd, log, append(requests.DialOptions(), connections.DialOptions()...)...)
	if err != nil {
		return daemon.Usage(err)
	}
	defer etcd.Close()
	r, err := join(o, etcd, log)
	if err != nil {
		return daemon.Usage(err)
	}
	registry := daemon.NewRegistry(namespace)
	registry.MustRegister(r.metrics, r.sweeper, requests, lockmetrics.PolicyInfo(namespace, string(r.config.Mode)))
	if o.dashboard != "" {
		registry.MustRegister(lockmetrics.DashboardInfo(namespace, dashboardURL(o.dashboard)))
	}
	if r.pusher != nil {
		registry.MustRegister(r.pusher)
	}
	if r.pods != nil {
		registry.MustRegister(r.pods)
	}
	ready := &daemon.Readiness{}
	ready.Add("locks", r.listed)
	wiring.Ready(ready, r.view, r.trouble)
	ready.Add("writes", r.writes)
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	server := &daemon.Server{
		Address: o.web.Address, ConfigFile: o.web.ConfigFile, Drain: o.web.ShutdownTimeout, Log: log,
		Handler: (&page{components: r, ready: ready}).routes(ops.Handler(), o.web.Prefix()),
	}
	address, err := server.Listen()
	if err != nil {
		return err
	}
	probes, err := probes(o.web.ProbeAddress, ops)
	if err != nil {
		return err
	}
	policy(log.Info(), r.config).Stringer("address", address).Str("prefix", o.locks.Prefix).Msg("unlocker starts")

	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	group.Add("reload", o.reload(r, connections, log).Run)
	group.Add("health of etcd", r.health.Run)
	group.Add("trouble with etcd", r.trouble.Run)
	group.Add("view", r.view.Run)
	if probes != nil {
		group.Add("probes", probes.Run)
	}
	group.Add("http", server.Run)
	// an unlocker that adds to the history also trims it
	if o.historyMax > 0 && r.config.Mode == sweeper.AutoUnlock {
		trim := func(ctx context.Context) (int, error) { return r.store.TrimHistory(ctx, o.historyMax) }
		group.Add("history", (&historyTrimmer{trim: trim, log: log}).Run)
	}
	if r.pusher != nil {
		group.Add("alerts", r.pusher.Run)
	}
	if r.pods != nil {
		group.Add("witness in Kubernetes", r.pods.Run)
	}
	group.Add("deadlocks", newDeadlockLogger(r.cycles, log).Run)
	group.Add("sweeper", r.sweeper.Run)
	err = group.Run(ctx)
	r.leave(log)
	return err
}

// probes returns a server for probers that cannot log in, such as Kubernetes; nil without an address.
func probes(address string, ops daemon.Ops) (*daemon.Server, error) {
	if address == "" {
		return nil, nil
	}
	s := &daemon.Server{Address: address, Handler: ops.Probes(), Drain: time.Second, Log: ops.Log}
	at, err := s.Listen()
	if err == nil {
		ops.Log.Info().Stringer("address", at).Msg("probes have a listener of their own")
	}
	return s, err
}

// policy adds what is removed, and when, to a log line.
func policy(e *zerolog.Event, c sweeper.Config) *zerolog.Event {
	return e.Str("version", c.Version).Str("instance", c.ID).Str("policy", string(c.Mode)).
		Stringer("clock_skew", c.Policy.ClockSkew).Stringer("min_warning", c.Policy.MinWarning).
		Stringer("default_alert_after", c.Policy.DefaultAlertAfter).
		Stringer("default_auto_unlock_after", c.Policy.DefaultAutoUnlockAfter).
		Bool("unlock_abandoned", c.Policy.UnlockAbandoned).Stringer("abandoned_grace", c.Policy.AbandonedGrace).
		Stringer("lock_delay", c.Policy.LockDelay).
		Strs("exclude", c.Exclude)
}

// listed is the readiness condition that the locks have been listed once.
func (r *components) listed() error {
	f := r.view.Fresh()
	if !f.Heard.IsZero() {
		return nil
	}
	return errors.New("not read yet: " + wiring.Cause(f, r.trouble))
}

// leave deletes our presence record, so that it need not expire.
func (r *components) leave(log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.store.Leave(ctx, r.config.ID); err != nil {
		log.Debug().Err(err).Msg("the presence record is left to expire")
	}
}
