// Package unlocker is the program of that name: its flags, its rooms joined, its status page. It is a package of its
// own so that mutexdev runs the same program.
package unlocker

import (
	"fmt"
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

// options are what the flags say.
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
	eventRetention   time.Duration
	historyRetention time.Duration
	historyMax       int
	dashboard        string
	push             pushOptions
}

// Command is the program.
func Command() *cobra.Command {
	cmd := runnable("unlocker")
	cmd.Version = build.Current().Version
	cmd.Short = "removes distributed locks whose holders are gone"
	cmd.Long = `unlocker watches the distributed locks of an etcd cluster. It shows them to Prometheus, so that people are alerted about a lock
whose holder takes longer than it said, and, with --policy=auto-unlock, it removes a lock when the deadline that its holder gave
has passed and people were warned long enough.

Run two or more of them. All of them are active; no lock is removed twice. A role with readwrite permission for exactly the
locks' prefix is all that it needs in etcd.`
	cmd.Example = `  unlocker --policy=alert-only
  unlocker --policy=auto-unlock --etcd.endpoints=https://etcd-0:2379,https://etcd-1:2379 --etcd.cacert=ca.crt
  unlocker --policy=auto-unlock --sweep.dry-run`
	again := runnable("run") // for those who like to say what they want
	again.Short = "the same as unlocker alone"
	cmd.AddCommand(again, rulesCommand(), versionCommand())
	flags.Bind(cmd, "UNLOCKER")
	return cmd
}

// runnable is a command that runs an unlocker.
func runnable(name string) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: name, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.policy, "policy", "", "what to do about stale locks, required: alert-only or auto-unlock")
	o.sweep = flags.Policy(fs)
	o.define(fs)
	o.push.define(fs)
	o.locks = flags.Locks(fs)
	o.etcd = flags.Etcd(fs)
	o.log = flags.Log(fs)
	o.web = flags.Web(fs, daemon.WebSettings{Address: ":10980", ShutdownDelay: 5 * time.Second,
		ShutdownTimeout: 20 * time.Second})
	fs.StringVar(&o.web.ProbeAddress, "web.probe-address", "",
		"`host:port` to serve probes on as well, and nothing else, without TLS and login")
	return cmd
}

// define defines the flags that only an unlocker has.
func (o *options) define(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.exclude, "sweep.exclude", nil,
		"`glob` of lock names that are never removed, repeatable; * is any text, slashes included")
	fs.BoolVar(&o.dryRun, "sweep.dry-run", false, "remove nothing, but say what would be removed")
	fs.StringVar(&o.series, "metrics.lock-series", string(lockmetrics.SeriesAlerting),
		"which locks have series of their own: alerting, all, none")
	fs.IntVar(&o.seriesLimit, "metrics.lock-series-limit", 1000,
		"`number` of locks that have series of their own at most, the most overdue first")
	fs.DurationVar(&o.eventRetention, "metrics.event-retention", time.Hour,
		"time for which the removal of a lock stays in the metrics")
	fs.DurationVar(&o.historyRetention, "history.retention", protocol.HistoryRetention,
		"time for which the ending of a removed lock can be looked up")
	fs.IntVar(&o.historyMax, "history.max", lockstore.DefaultHistoryMax,
		"`number` of such endings that are kept at most, the newest ones; 0 is no limit")
	fs.StringVar(&o.dashboard, "dashboard.url", "", "`URL` under which people reach the dashboard, for links in alerts")
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "which build this is", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := build.Current()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "unlocker %s (revision %s, %s)\n", b.Version, b.Revision,
				b.GoVersion)
			return err
		},
	}
}
