// Package unlocker has the command unlocker: flags, wiring, landing page. Mutexdev runs it, too.
package unlocker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/deploy"
	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// run wires the program and runs it until ctx ends.
func run(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	log := daemon.Logger(*o.log, os.Stderr)
	requests := etcdconn.NewRequestMetrics(namespace)
	etcd, err := etcdconn.New(*o.etcd, log, requests.DialOptions()...)
	if err != nil {
		return daemon.Usage(err)
	}
	defer etcd.Close()
	r, err := wire(o, etcd, log)
	if err != nil {
		return daemon.Usage(err)
	}
	registry := daemon.NewRegistry(namespace)
	view := lockmetrics.NewViewCollector(namespace, r.view, r.health.Alarms)
	registry.MustRegister(view, r.metrics, r.sweeper, requests,
		lockmetrics.PolicyInfo(string(r.config.Mode), r.config.Policy.ToPresence(nil).Abandoned))
	registry.MustRegister(certificate.NewMetrics(namespace, certificate.Sources{EtcdClient: o.etcd.ClientCertificate,
		EtcdServer: r.health.ServerCertificate, Web: o.web.Certificate}))
	if o.dashboard != "" {
		url := strings.TrimSuffix(o.dashboard, "/") + "/" // so that the path of a page can follow
		registry.MustRegister(lockmetrics.DashboardInfo(url))
	}
	if r.pods != nil {
		registry.MustRegister(r.pods)
	}
	ready := &daemon.Readiness{}
	ready.Add("locks", r.view.CheckListed)
	ready.Add("etcd", r.view.CheckSynced)
	ready.Add("writes", r.checkWrites)
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	landing, err := landingPage(o.dashboard, o.web.Pprof)
	if err != nil {
		return err
	}
	routes := ops.Handler()
	routes.Handle("GET /{$}", landing)
	log.Info().Str("version", r.config.Version).Str("instance", r.config.ID).
		Str("policy", string(r.config.Mode)).Str("sweep", fmt.Sprintf("%+v", r.config.Policy)).
		Strs("exclude", r.config.Exclude).Str("prefix", o.locks.Prefix()).Msg("unlocker starts")

	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	group.Add("health of etcd", r.health.Run)
	group.Add("faults of etcd", r.faults.Run)
	group.Add("view", r.view.Run)
	group.Add("locks of other libraries", r.others.Run)
	if o.web.ProbeAddress != "" { // for probes that cannot log in, such as those of Kubernetes
		if err := group.AddServer("probes", &daemon.Server{Address: o.web.ProbeAddress, Flag: "--web.probe-address",
			Handler: ops.Probes(), Drain: time.Second}); err != nil {
			return err
		}
	}
	if err := group.AddServer("http", o.web.NewServer(below(o.web.Prefix(), routes))); err != nil {
		return err
	}
	// an unlocker that adds to the history also trims it
	if o.historyMax > 0 && r.config.Mode == sweeper.AutoUnlock {
		trim := func(ctx context.Context) (int, error) { return r.store.TrimHistory(ctx, o.historyMax) }
		group.Add("history", func(ctx context.Context) error { return trimRegularly(ctx, trim, log) })
	}
	if r.pods != nil {
		group.Add("witness in Kubernetes", r.pods.Run)
	}
	group.Add("sweeper", r.sweeper.Run)
	err = group.Run(ctx)
	r.deletePresence(log)
	return err
}

// deletePresence deletes our presence record, which would otherwise last until its lease expires.
func (r *components) deletePresence(log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.store.DeletePresence(ctx, r.config.ID); err != nil {
		log.Debug().Err(err).Msg("the presence record is left to expire")
	}
}

type options struct {
	etcd  *etcdconn.Settings
	locks *protocol.Layout
	log   *daemon.LogSettings
	web   *daemon.WebSettings

	policy           string
	dryRun           bool
	sweeper          sweeper.Config     // without its connections
	metrics          lockmetrics.Config // without its connections
	historyRetention time.Duration
	historyMax       int
	dashboard        string
	kubernetes       kubernetesOptions
	others           []string // prefixes of other libraries' locks
}

// Command returns the program as a command.
func Command() *cobra.Command {
	o := options{sweeper: sweeper.DefaultConfig()}
	cmd := &cobra.Command{
		Use: "unlocker", Short: "removes distributed locks whose holders are gone", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Long = `unlocker watches the distributed locks of an etcd cluster. It exports them to Prometheus, to alert
about locks that are held for longer than their holders promised. With --policy=auto-unlock, it
removes a lock when the deadline that its holder set has passed and the lock has alerted for long
enough.

Run two or more. All are active; no lock is removed twice. In etcd, it needs a role with readwrite
permission for exactly the locks' prefix.`
	cmd.Example = `  unlocker --policy=alert-only
  unlocker --policy=auto-unlock --etcd.endpoints=https://etcd-0:2379,https://etcd-1:2379 --etcd.cacert=ca.crt
  unlocker --policy=auto-unlock --sweep.dry-run`
	o.defineAll(cmd.Flags())
	cmd.AddCommand(witnessCommand(), rulesCommand())
	flags.Version(cmd, daemon.CurrentBuild().Line("unlocker"))
	flags.Bind(cmd, "UNLOCKER")
	return cmd
}

func (o *options) defineAll(fs *pflag.FlagSet) {
	fs.StringVar(&o.policy, "policy", "", "what to do about stale locks: alert-only or auto-unlock; required")
	flags.Policy(fs, &o.sweeper.Policy)
	o.define(fs)
	o.kubernetes.define(fs)
	o.locks = flags.Locks(fs)
	flags.EtcdLocks(fs, &o.others)
	fs.DurationVar(&o.metrics.LeasedAlertAfter, "etcd-locks.alert-after", 0,
		"how long a lock of another library is held before UnlockerLeasedLockHeldLong alerts; 0s is never")
	o.etcd = flags.Etcd(fs)
	o.log = flags.Log(fs, "info")
	o.web = flags.Web(fs, daemon.WebSettings{Address: ":10980"})
	fs.StringVar(&o.web.ProbeAddress, "web.probe-address", "",
		"`host:port` of an extra listener for probes only, without TLS or login")
}

func (o *options) define(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.sweeper.Exclude, "sweep.exclude", nil,
		"`glob` of lock names that are never removed; * matches any text, including slashes; repeatable")
	fs.BoolVar(&o.dryRun, "sweep.dry-run", false, "remove nothing, but log what would be removed")
	flags.Enum(fs, (*string)(&o.metrics.Series), []string{"alerting", "all", "none"}, "metrics.lock-series",
		string(lockmetrics.SeriesAlerting), "which locks get series of their own")
	fs.IntVar(&o.metrics.SeriesLimit, "metrics.lock-series-limit", 1000,
		"maximum `number` of locks with series of their own, the most urgent first")
	flags.NotNegative(fs, "metrics.lock-series-limit")
	fs.StringSliceVar(&o.metrics.Attributes, "metrics.label-attribute", []string{"team"},
		"`attribute` of a lock's record that becomes a label of the lock's series; comma-separated or repeated. "+
			"The Prometheus rules pass on the label team")
	fs.DurationVar(&o.historyRetention, "history.retention", protocol.HistoryRetention,
		"how long to keep the record of how a removed lock ended")
	flags.Positive(fs, "history.retention")
	fs.IntVar(&o.historyMax, "history.max", lockstore.DefaultHistoryMax,
		"maximum `number` of records of how locks ended, the newest ones; 0 is no limit")
	flags.NotNegative(fs, "history.max")
	fs.StringVar(&o.dashboard, "dashboard.url", "", "`URL` of the dashboard, for links in alerts")
}

// rulesCommand returns the command that prints the alert rules of this build.
func rulesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rules", Short: "the alert rules for Prometheus", Args: cobra.NoArgs,
		Long: `Print the alert rules for Prometheus that belong to this version. docs/runbooks.md, which the
alerts link to, says what each alert means and what to do about it.`,
		Example: `  unlocker rules > /etc/prometheus/rules/unlocker.rules.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(deploy.Rules)
			return err
		},
	}
}
