// Package mutexdash is the program mutexdash: it joins the dashboard to the view, the store and the web.
// rooms; it does nothing by itself.
package mutexdash

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// options are what the flags say.
type options struct {
	etcd   *etcdconn.Settings
	locks  *flags.LockSettings
	policy *staleness.Policy
	log    *daemon.LogSettings
	web    *daemon.WebSettings

	title          string
	environment    string
	hideBacktraces bool
	links          []string
	ancestors      []string
	sources        []string
	minRefresh     time.Duration
	hsts           time.Duration
	hosts          []string
	webhook        string
	access         accessOptions
	given          []setup.Setting
}

// Command returns the program.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "mutexdash",
		Short: "the dashboard of distributed locks",
		Long: `mutexdash serves pages and a JSON API that show the distributed locks of an etcd cluster. Unless
force unlock is switched on it only reads: an etcd role that may read the locks' prefix is enough. When etcd is away it stays up and shows the last known state as such.

The pages are on --web.listen-address; probes and metrics, without login, on --web.ops-address.`,
		Example: `  mutexdash --etcd.endpoints etcd-0:2379,etcd-1:2379 --web.environment prod-eu`,
		Args:    cobra.NoArgs,
		Version: build.Current().Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = given(cmd.Flags())
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	o.etcd = flags.Etcd(fs)
	o.locks = flags.Locks(fs)
	o.web = flags.Web(fs, daemon.WebSettings{Address: ":8080", OpsAddress: ":10981"})
	o.look(fs)
	o.access.flags(fs)
	o.policy = flags.Policy(fs)
	o.log = flags.Log(fs)
	flags.Bind(cmd, "MUTEXDASH")
	return cmd
}

// look defines the flags of how the pages present themselves.
func (o *options) look(fs *pflag.FlagSet) {
	fs.StringVar(&o.title, "web.page-title", "mutexdash", "`text` in the title of every page")
	fs.StringVar(&o.environment, "web.environment", "",
		"`name` of the environment, shown on top of every page; one with \"prod\" in it always in the same colour")
	fs.BoolVar(&o.hideBacktraces, "web.hide-backtraces", false, "do not show where in the code locks were taken")
	fs.DurationVar(&o.minRefresh, "web.min-refresh", 2*time.Second,
		"least time that pages wait before they look again, up to 1m")
	fs.StringArrayVar(&o.links, "web.link", nil,
		"`NAME=URL` of a link on the page of a lock, repeated for more; the URL is https and may hold {name} {owner} {host} {pid} {hold} {purpose}")
	fs.StringArrayVar(&o.sources, "web.source-link", nil,
		"`PREFIX=URL` that leads from a frame of a backtrace to its code, repeated for more; for files whose path begins with PREFIX, which may be empty; the URL is https and holds {file}, without PREFIX, and {line}")
	fs.StringVar(&o.webhook, "web.unlock-webhook", "",
		"`URL` that is told of every force unlock, by POST of JSON; it may hold a secret, so rather give it as variable")
	fs.DurationVar(&o.hsts, "web.hsts", 0,
		"time for which browsers that came by TLS shall come by nothing else, such as 8760h; needs TLS in the file of --web.config.file; 0 says nothing")
	fs.StringSliceVar(&o.hosts, "web.allowed-hosts", nil,
		"`names` of hosts under which requests are answered, besides that of --web.external-url, localhost, this machine's own and all addresses; comma separated or repeated")
	fs.StringSliceVar(&o.ancestors, "web.frame-ancestors", nil,
		"`origins` of pages that may show ours in a frame, such as https://portal.example; none otherwise")
}

// given are the flags that are not at their default, wherever they come from. What may hold a secret is left out.
func given(fs *pflag.FlagSet) []setup.Setting {
	var list []setup.Setting
	fs.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		switch {
		case value == f.DefValue || f.Name == "help" || f.Name == "version":
			return
		case f.Name == "web.unlock-webhook":
			value = "(secret)"
		case f.Name == "etcd.endpoints":
			value = strings.Join(public(strings.Split(strings.Trim(value, "[]"), ",")), ",")
		}
		list = append(list, setup.Setting{Name: f.Name, Value: value, Public: forEverybody(f.Name)})
	})
	return list
}

// forEverybody reports whether every viewer may know the flag: what the pages look like, and how locks are judged.
// Others name files, addresses and people's tools.
func forEverybody(name string) bool {
	switch name {
	case "web.environment", "web.page-title", "web.min-refresh", "web.hide-backtraces", "web.enable-force-unlock",
		"web.identity", "locks.prefix", "log.level":
		return true
	}
	return strings.HasPrefix(name, "sweep.")
}
