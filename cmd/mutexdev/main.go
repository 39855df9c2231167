// Mutexdev is everything in one process: an etcd, the unlocker, the dashboard, and demo services that take locks. It is
// for trying out and developing: it has no passwords, and deletes its data at the end.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() { os.Exit(flags.Main(command())) }

type options struct {
	etcd, unlocker, web *address
	noDemo              bool
	speed               float64
	log                 *daemon.LogSettings
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "mutexdev",
		Short: "etcd, unlocker, dashboard and demo locks in one process",
		Long: `mutexdev runs an etcd, the unlocker, the dashboard and demo services that take locks, all in one
process, and prints where to look. Ctrl-C stops it and deletes its data. It is for trials and
development: there are no passwords, and it listens on this machine only.`,
		Example: `  mutexdev
  mutexdev --no-demo --speed 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fs := cmd.Flags()
	o.etcd = listenFlag(fs, "etcd.listen-address", "127.0.0.1:2379", "etcd")
	o.unlocker = listenFlag(fs, "unlocker.listen-address", "127.0.0.1:10980", "the unlocker's metrics and probes")
	o.web = listenFlag(fs, "web.listen-address", "127.0.0.1:8080", "the dashboard")
	fs.BoolVar(&o.noDemo, "no-demo", false, "run no demo services: the bare system, to develop against")
	fs.Float64Var(&o.speed, "speed", 1, "how much faster than normal time passes for the demo and the unlocker")
	o.log = flags.Log(fs, "warn") // what happens to locks is logged as warnings
	flags.Version(cmd, daemon.CurrentBuild().Line("mutexdev"))
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
			return holdUntilKilled(cmd.Context(), etcd, args[1], os.Stdin, os.Stdout)
		},
	}
}

// address is where a server listens: the requested address or, if the default is taken and none was requested, any free
// one.
type address struct {
	what, flag string
	value      string
	requested  func() bool
	inUse      string // the default address, if it was in use
}

func listenFlag(fs *pflag.FlagSet, name, value, what string) *address {
	a := &address{what: what, flag: name, requested: func() bool { return fs.Changed(name) }}
	fs.StringVar(&a.value, name, value, "`host:port` of "+what+"; if the default is in use, a free port is used")
	return a
}

// free returns an address that is free, for a server that binds it by itself.
func (a *address) free() (string, error) {
	l, err := net.Listen("tcp", a.value)
	if errors.Is(err, syscall.EADDRINUSE) && !a.requested() {
		a.inUse = a.value
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", fmt.Errorf("%s cannot listen on %s: something else does; give another --%s, or port 0 for any "+
			"free one", a.what, a.value, a.flag)
	}
	if err != nil {
		return "", fmt.Errorf("%s cannot listen: %w; is --%s right?", a.what, err, a.flag)
	}
	return l.Addr().String(), l.Close()
}

func (o *options) guide() string {
	var b strings.Builder
	b.WriteString("\nmutexdev: an etcd, the unlocker and the dashboard. Ctrl-C stops everything.\n\n")
	if !o.noDemo {
		b.WriteString(o.tour())
	}
	fmt.Fprintf(&b, `In another terminal:

  export ETCDCTL_ENDPOINTS=%s
  go run ./cmd/mutexctl list
  go run ./cmd/mutexctl run 'my/lock' -- sleep 60
  curl -s http://%s/api/v1/summary
  curl -s http://%s/metrics | grep ^unlocker_locks

`, o.etcd.value, o.web.value, o.unlocker.value)
	for _, a := range []*address{o.etcd, o.unlocker, o.web} {
		if a.inUse != "" {
			fmt.Fprintf(&b, "  %s was in use, so a free port was chosen for %s.\n", a.inUse, a.what)
		}
	}
	fmt.Fprintf(&b, "  %-10s %s  data is deleted at the end\n", "etcd", o.etcd.value)
	fmt.Fprintf(&b, "  %-10s http://%s/metrics\n", "unlocker", o.unlocker.value)
	fmt.Fprintf(&b, "  %-10s %s\n\n", "dashboard", o.page())
	return b.String()
}

// page is the address of the dashboard.
func (o *options) page() string { return "http://" + o.web.value + "/" }

func (o *options) tour() string {
	second := func(s float64) string { return fmt.Sprintf("%.3g s", s/o.speed) }
	tour := fmt.Sprintf(`Open the dashboard and look at

  1. billing/invoice-run   a long job that reports progress and so gets more time; the other pod waits
  2. %s       forgotten by its holder: it alerts after %s and is auto-unlocked
                           after %s, so the waiting pod gets it; its page shows where it hangs
  3. search/reindex        hangs, too, but its heartbeat goes on: it alerts after %s, and stays
  4. catalog/import/...    short jobs that come and go
  5. nightly/database dump held by a shell script: plain keys, no library
  6. reports/weekly        malformed: its deadlines are unreadable, so an operator has to look
  7. media/transcoders     a semaphore of three permits, of which a long film wants two: Waiting shows who is next
  8. catalog/prices        a read-write lock: readers together, then the writer alone
  9. reports/statistics    a job that two pods try to run, and that runs once a minute
`, forgottenLock, second(20), second(65), second(40))
	if canWitness() {
		tour += fmt.Sprintf(` 10. %s   its process is killed (kill -9) %s after it took the lock: a witness
                           proves that it is dead, and after %s the waiting pod has the lock, long before
                           the deadline
`, killedLock, second(15), second(10))
	}
	return tour + "\n"
}
