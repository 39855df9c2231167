// Package unlocker is the unlocker as a command: its flags, its wiring, its status page. It is a package so that
// mutexdev can run the same program.
package unlocker

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// options holds the values of the flags.
type options struct {
	etcd  *etcdconn.Settings
	locks *flags.LockSettings
	sweep *staleness.Policy
	log   *daemon.LogSettings
	web   *daemon.WebSettings

	policy           string
	exclude          []string
	dryRun           bool
	series           string
	seriesLimit      int
	attributes       []string
	eventRetention   time.Duration
	historyRetention time.Duration
	historyMax       int
	dashboard        string
	push             pushOptions
	kubernetes       kubernetesOptions
}

// Command returns the program as a command.
func Command() *cobra.Command {
	cmd := runnable("unlocker")
	cmd.Short = "removes distributed locks whose holders are gone"
	cmd.Long = `unlocker watches the distributed locks of an etcd cluster. It exports them to Prometheus, to alert
about locks that are held for longer than their holders promised. With --policy=auto-unlock, it
removes a lock when the deadline that its holder set has passed and the lock has alerted for long
enough.

Run two or more. All are active; no lock is removed twice. In etcd, it needs a role with readwrite
permission for exactly the locks' prefix.`
	cmd.Example = `  unlocker --policy=alert-only
  unlocker --policy=auto-unlock --etcd.endpoints=https://etcd-0:2379,https://etcd-1:2379 --etcd.cacert=ca.crt
  unlocker --policy=auto-unlock --sweep.dry-run`
	again := runnable("run") // for command lines that like a verb
	again.Short = "the same as unlocker without a command"
	cmd.AddCommand(again, witnessCommand(), rulesCommand())
	flags.Version(cmd, build.Current().Line("unlocker"))
	flags.Bind(cmd, "UNLOCKER")
	return cmd
}

// runnable returns a command that runs an unlocker.
func runnable(name string) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: name, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.policy, "policy", "", "what to do about stale locks: alert-only or auto-unlock; required")
	o.sweep = flags.Policy(fs)
	o.define(fs)
	o.push.define(fs)
	o.kubernetes.define(fs)
	o.locks = flags.Locks(fs)
	o.etcd = flags.Etcd(fs)
	o.log = flags.Log(fs)
	o.web = flags.Web(fs, daemon.WebSettings{Address: ":10980", ShutdownDelay: 5 * time.Second,
		ShutdownTimeout: 20 * time.Second})
	fs.StringVar(&o.web.ProbeAddress, "web.probe-address", "",
		"`host:port` of an extra listener for probes only, without TLS or login")
	return cmd
}

// define defines the unlocker's own flags.
func (o *options) define(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.exclude, "sweep.exclude", nil,
		"`glob` of lock names that are never removed; * matches any text, including slashes; repeatable")
	fs.BoolVar(&o.dryRun, "sweep.dry-run", false, "remove nothing, but log what would be removed")
	fs.StringVar(&o.series, "metrics.lock-series", string(lockmetrics.SeriesAlerting),
		"which locks get series of their own: alerting, all, none")
	fs.IntVar(&o.seriesLimit, "metrics.lock-series-limit", 1000,
		"maximum `number` of locks with series of their own, the most overdue first")
	fs.StringSliceVar(&o.attributes, "metrics.label-attribute", []string{"team"},
		"`ATTRIBUTE` of a lock's record, or LABEL=ATTRIBUTE, that becomes a label of the lock's series; comma-separated "+
			"or repeated, five at most. The rules for Prometheus pass on the label team")
	fs.DurationVar(&o.eventRetention, "metrics.event-retention", time.Hour,
		"how long the removal of a lock stays in the metrics")
	fs.DurationVar(&o.historyRetention, "history.retention", protocol.HistoryRetention,
		"how long to keep the record of how a removed lock ended")
	fs.IntVar(&o.historyMax, "history.max", lockstore.DefaultHistoryMax,
		"maximum `number` of such records, the newest ones; 0 is no limit")
	fs.StringVar(&o.dashboard, "dashboard.url", "", "`URL` of the dashboard, for links in alerts")
}
