// Mutexdev is everything in one process: an etcd, the unlocker, the dashboard, and demo services that take locks. It is
// for trying out and developing: it has no passwords, and by default deletes its data at the end.
package main

import (
	"context"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/mutexdev/demo"
	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() {
	os.Exit(daemon.Main("mutexdev", func(ctx context.Context) error {
		return flags.Execute(ctx, command(), os.Args[1:])
	}))
}

// options holds the values of the flags.
type options struct {
	etcd, unlocker, web *address
	dataDir             string
	noDemo              bool
	runFor              time.Duration
	speed               float64
	log                 *daemon.LogSettings
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "mutexdev",
		Short: "etcd, unlocker, dashboard and demo locks in one process",
		Long: `mutexdev runs an etcd, the unlocker, the dashboard and demo services that take locks, all in one
process, and prints where to look. Ctrl-C stops it and, unless a data directory is given, nothing
is left behind. It is for trying out and developing: there are no passwords, and it listens on this
machine only.`,
		Example: `  mutexdev
  mutexdev --no-demo --data-dir /tmp/locks
  mutexdev --speed 5 --for 2m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return daemon.Usage(err)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	o.etcd = listenFlag(fs, "etcd.listen-address", "127.0.0.1:2379", "etcd")
	o.unlocker = listenFlag(fs, "unlocker.listen-address", "127.0.0.1:10980", "the unlocker's metrics and probes")
	o.web = listenFlag(fs, "web.listen-address", "127.0.0.1:8080", "the dashboard")
	fs.StringVar(&o.dataDir, "data-dir", "",
		"`directory` of etcd's data, kept for the next run; default: a temporary one that is deleted at the end")
	fs.BoolVar(&o.noDemo, "no-demo", false, "run no demo services: the bare system, to develop against")
	fs.DurationVar(&o.runFor, "for", 0, "stop after this time; 0 is never")
	fs.Float64Var(&o.speed, "speed", 1, "how much faster than normal time passes for the demo and the unlocker")
	o.log = flags.Log(fs)
	quiet := fs.Lookup("log.level") // what happens to locks is logged as warnings
	o.log.Level = "warn"
	quiet.DefValue = "warn"
	flags.Version(cmd, build.Current().Line("mutexdev"))
	flags.Bind(cmd, "MUTEXDEV")
	cmd.AddCommand(holderCommand())
	return cmd
}

// holderName is the command that mutexdev starts as a process of its own.
const holderName = "demo-holder"

// holderCommand returns the command that takes a lock of the demo. Its process is killed while it holds it.
func holderCommand() *cobra.Command {
	return &cobra.Command{
		Use: holderName + " ENDPOINT HOSTNAME", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			etcd, err := etcdconn.New(settings(args[0]), zerolog.Nop())
			if err != nil {
				return err
			}
			defer etcd.Close()
			return demo.Hold(cmd.Context(), etcd, args[1], os.Stdin, os.Stdout)
		},
	}
}
