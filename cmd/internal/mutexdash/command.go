// Package mutexdash has the command mutexdash: its flags, and the wiring of the dashboard to the view and the store.
package mutexdash

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
)

type options struct {
	etcd   *etcdconn.Settings
	locks  *protocol.Layout
	others []string // prefixes of other libraries' locks
	log    *daemon.LogSettings
	web    *daemon.WebSettings

	environment    string
	hideBacktraces bool
	links          []string
	sources        []string
	minRefresh     time.Duration
	hsts           time.Duration
	hosts          []string
	alertmanager   string
	access         accessOptions
	changedFlags   []app.Setting
}

// Command returns the program as a command.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "mutexdash",
		Short: "the dashboard of distributed locks",
		Long: `mutexdash serves pages and a JSON API that show the distributed locks of an etcd cluster. Unless
an action is enabled, it only reads: an etcd role with read permission on the locks' prefix is
enough. While etcd is unavailable it stays up and shows the last known state, marked as such.

The pages are on --web.listen-address; probes and metrics, without login, on --web.ops-address.`,
		Example: `  mutexdash --etcd.endpoints etcd-0:2379,etcd-1:2379 --web.environment prod-eu`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.changedFlags = changedFlags(cmd.Flags())
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	o.etcd = flags.Etcd(fs)
	o.locks = flags.Locks(fs)
	flags.EtcdLocks(fs, &o.others)
	o.web = flags.Web(fs, daemon.WebSettings{Address: ":8080", OpsAddress: ":10981"})
	o.appearanceFlags(fs)
	o.access.flags(fs)
	o.log = flags.Log(fs, "info")
	flags.Version(cmd, daemon.CurrentBuild().Line("mutexdash"))
	flags.Bind(cmd, "MUTEXDASH")
	return cmd
}

func (o *options) appearanceFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.environment, "web.environment", "",
		"`name` of the environment, shown on top of every page; names with \"prod\" in them share one colour")
	fs.BoolVar(&o.hideBacktraces, "web.hide-backtraces", false, "hide where in the code locks were taken")
	fs.DurationVar(&o.minRefresh, "web.min-refresh", 2*time.Second,
		"minimum time between refreshes of a page, up to 1m")
	fs.StringArrayVar(&o.links, "web.link", nil,
		"`NAME=URL` of a link on every lock's page; the URL is https and may contain {name} {owner} {host} {pid} "+
			"{hold} {purpose} {trace} {span}; repeatable")
	fs.StringArrayVar(&o.sources, "web.source-link", nil,
		"`PREFIX=URL` that links frames of backtraces to their code, for files whose path begins with PREFIX, which "+
			"may be empty; the URL is https and contains {file}, without PREFIX, and {line}; repeatable")
	fs.StringVar(&o.alertmanager, "web.alertmanager-url", "",
		"`URL` at which users reach Alertmanager; a lock's page then links to its silence form")
	fs.DurationVar(&o.hsts, "web.hsts", 0,
		"how long browsers must insist on TLS after a visit over TLS (HSTS), such as 8760h; needs TLS in the file of "+
			"--web.config.file; 0 sends no header")
	fs.StringSliceVar(&o.hosts, "web.allowed-hosts", nil,
		"`names` of hosts to answer requests for, besides that of --web.external-url, localhost, this machine's own "+
			"and all IP addresses; comma-separated or repeated")
}

// changedFlags returns the flags that differ from their defaults, set on the command line or by variables.
func changedFlags(fs *pflag.FlagSet) []app.Setting {
	var list []app.Setting
	fs.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if value == f.DefValue || f.Name == "help" || f.Name == "version" {
			return
		}
		list = append(list, app.Setting{Name: f.Name, Value: value, Public: isPublic(f.Name)})
	})
	return list
}

// isPublic reports whether every viewer may see the flag: those about the appearance of pages. Others name files,
// addresses and internal tools.
func isPublic(name string) bool {
	return slices.Contains([]string{"web.environment", "web.min-refresh", "web.hide-backtraces",
		"web.enable-force-unlock", "web.enable-ask-and-extend", "web.enable-acknowledge", "web.identity",
		"locks.prefix", "log.level"}, name)
}
