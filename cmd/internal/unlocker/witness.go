package unlocker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/witness/host"
	"github.com/clustermutex/unlocker/internal/witness/pod"
)

// witnessNamespace is the prefix of the metrics of a witness.
const witnessNamespace = "unlocker_witness"

type witnessOptions struct {
	etcd  *etcdconn.Settings
	locks *protocol.Layout
	log   *daemon.LogSettings
	web   *daemon.WebSettings

	stateDir string
	hostname string
}

func witnessCommand() *cobra.Command {
	var o witnessOptions
	cmd := &cobra.Command{
		Use: "witness", Short: "Report holders on this machine that have died", Args: cobra.NoArgs,
		Long: `Run a witness of this machine. It watches the processes that hold locks, and records in etcd when one
has ended, for whatever reason. An unlocker need not wait for the deadlines of such locks.

Run one on each machine, in the machine's own pid namespace. It needs no root. In etcd, it needs a
role with read permission for the locks' prefix, and readwrite for PREFIX.deaths/ and
PREFIX.suspicions/. Linux only.

With --witness.state-dir, it also reports holders that ended with a reboot. The directory belongs to
one machine: it must not be part of an image, nor be copied to another machine.`,
		Example: `  unlocker witness --etcd.endpoints=https://etcd-0:2379,https://etcd-1:2379 --etcd.cacert=ca.crt
  unlocker witness --witness.state-dir=/var/lib/unlocker-witness`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.stateDir, "witness.state-dir", "",
		"`directory` in which to record the boots of this machine, to know after a reboot which holders it ended")
	fs.StringVar(&o.hostname, "witness.hostname", "",
		"`name` of this machine, if it is not the host name that the witness sees, as in a pod (default: the host "+
			"name)")
	o.locks = flags.Locks(fs)
	o.etcd = flags.Etcd(fs)
	o.log = flags.Log(fs, "info")
	o.web = flags.Web(fs, daemon.WebSettings{Address: ":10983", ShutdownDelay: time.Second,
		ShutdownTimeout: 10 * time.Second})
	return cmd
}

// check returns an error, in one sentence, if the options cannot work. It opens nothing.
func (o witnessOptions) check() error {
	if runtime.GOOS != "linux" {
		return daemon.Usage(errors.New("a witness runs on Linux only: " +
			"other systems do not report enough about processes"))
	}
	return daemon.Usage(cmp.Or(o.etcd.Check(), o.web.Check()))
}

// run wires a witness and runs it until ctx ends.
func (o witnessOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	log := daemon.Logger(*o.log, os.Stderr)
	machine, err := o.readMachine(log)
	if err != nil {
		return daemon.Usage(err)
	}
	requests := etcdconn.NewRequestMetrics(witnessNamespace)
	etcd, err := etcdconn.New(*o.etcd, log, requests.DialOptions()...)
	if err != nil {
		return daemon.Usage(err)
	}
	defer etcd.Close()
	store := lockstore.New(etcd, *o.locks, lockstore.WithLog(log))
	view, faults := newWitnessView(machine, *o.locks, store, etcd, log)
	witness := newHostWitness(machine, view, store, log)
	registry := daemon.NewRegistry(witnessNamespace)
	registry.MustRegister(witness.Collector(witnessNamespace), requests, certificate.NewMetrics(witnessNamespace,
		certificate.Sources{EtcdClient: o.etcd.ClientCertificate, Web: o.web.Certificate}))
	ready := &daemon.Readiness{}
	ready.Add("locks", witness.Synced)
	ops := daemon.Ops{Ready: ready, Metrics: registry, Pprof: o.web.Pprof, Log: log}
	log.Info().Str("version", daemon.CurrentBuild().Version).Str("prefix", o.locks.Prefix()).
		Str("boot_id", machine.BootID).Int64("pid_namespace", machine.Namespace).Bool("sees_all", machine.SeesAll()).
		Int("earlier_boots", len(machine.Earlier)).Msg("witness starts")
	group := daemon.Group{Log: log, Ready: ready, Delay: o.web.ShutdownDelay, Timeout: o.web.ShutdownTimeout}
	if err := group.AddServer("http", o.web.NewServer(below(o.web.Prefix(), ops.Handler()))); err != nil {
		return err
	}
	group.Add("faults of etcd", faults.Run)
	group.Add("view", view.Run)
	group.Add("witness", witness.Run)
	return group.Run(ctx)
}

func (o witnessOptions) readMachine(log zerolog.Logger) (host.Machine, error) {
	m, err := host.ReadMachine()
	if err != nil {
		return m, err
	}
	if !m.SeesAll() {
		log.Warn().Int64("pid_namespace", m.Namespace).
			Msg("the witness sees only processes of its own pid namespace: to see all, run it in that of the machine " +
				"(hostPID in Kubernetes, --pid=host in Docker)")
	}
	if o.hostname != "" {
		m.Hostname = o.hostname
	}
	if o.stateDir == "" {
		return m, nil
	}
	m, forgotten, err := host.RememberBoots(m, o.stateDir)
	if err != nil {
		return m, fmt.Errorf("--witness.state-dir: %w", err)
	}
	if forgotten {
		log.Warn().Str("directory", o.stateDir).
			Msg("the state directory was written on another machine: the boots recorded there were forgotten")
	}
	return m, nil
}

// newWitnessView returns a view of the locks of this machine, with the monitor of its source. There may be many
// witnesses, so their views do not relist all locks every few minutes, as others do.
func newWitnessView(m host.Machine, layout protocol.Layout, store *lockstore.Store, etcd *clientv3.Client,
	log zerolog.Logger) (view *lockview.View, faults *etcdconn.FaultMonitor) {
	faults = &etcdconn.FaultMonitor{Etcd: etcd, Prefix: layout.Prefix(), Log: log,
		IsUsable: func() bool { return view.Fresh().Synced }}
	view = lockview.New(layout, lockview.Source{List: store.ListKeys, Watch: store.Watch},
		lockview.Options{Keep: m.MayHold, RelistEvery: 24 * time.Hour, Fault: faults.Fault, Explain: etcdconn.Explain,
			Log: log})
	return view, faults
}

func newHostWitness(m host.Machine, view *lockview.View, store *lockstore.Store, log zerolog.Logger) *host.Witness {
	return host.New(host.Config{
		ID: instance(m.Hostname), Machine: m, Locks: view.Locks, Changed: view.Changed, RecordProof: store.RecordProof,
		RecordSuspicion: store.RecordSuspicion,
		Freshness: func() (first int64, cause string) {
			f := view.Fresh()
			return f.FirstRevision, f.Cause
		},
		CheckWritable: func(ctx context.Context) error { return store.CheckWitnessRights(ctx, uuid.NewString()) },
		Explain:       etcdconn.Explain, Log: log,
	})
}

// kubernetesOptions holds the flags about the witness in Kubernetes.
type kubernetesOptions struct {
	pods       bool
	namespaces []string
	kubeconfig string
}

func (o *kubernetesOptions) define(fs *pflag.FlagSet) {
	fs.BoolVar(&o.pods, "kubernetes.pods", false,
		"watch pods, and declare a lock's holder dead when the kubelet reports the end of its container")
	fs.StringSliceVar(&o.namespaces, "kubernetes.namespaces", nil,
		"`namespace` whose pods are watched; comma-separated or repeated; default: all namespaces")
	fs.StringVar(&o.kubeconfig, "kubernetes.kubeconfig", "",
		"kubeconfig `file` for the API server; default: that of KUBECONFIG, or else the service account of the "+
			"unlocker's own pod")
}

func (o kubernetesOptions) check() error {
	switch {
	case !o.pods && (len(o.namespaces) > 0 || o.kubeconfig != ""):
		return errors.New("--kubernetes.namespaces and --kubernetes.kubeconfig are for --kubernetes.pods, which is " +
			"missing")
	case slices.Contains(o.namespaces, ""):
		return errors.New("--kubernetes.namespaces contains an empty name: leave the flag out to watch all namespaces")
	case o.kubeconfig != "":
		if _, err := os.Stat(o.kubeconfig); err != nil {
			return fmt.Errorf("--kubernetes.kubeconfig: %w", err)
		}
	}
	return nil
}

// witnessPods connects the witness in Kubernetes to the view and the store; it is nil if not configured.
func (r *components) witnessPods(o options, log zerolog.Logger) (*pod.Witness, error) {
	if !o.kubernetes.pods {
		return nil, nil
	}
	api, err := pod.Connect(cmp.Or(o.kubernetes.kubeconfig, os.Getenv("KUBECONFIG")))
	if err != nil {
		return nil, fmt.Errorf("--kubernetes.pods: %w", err)
	}
	return pod.New(pod.Config{
		Instance: r.config.ID, Namespaces: o.kubernetes.namespaces,
		Locks: r.view.All, Changed: r.view.Changed, Clock: r.view.Clock,
		RecordProof: r.store.RecordProof, RecordSuspicion: r.store.RecordSuspicion,
		WithdrawSuspicion: r.store.WithdrawSuspicion,
		Explain:           etcdconn.Explain, Log: log,
	}, api), nil
}
