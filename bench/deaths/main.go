// Command deaths measures how long a lock stays with a holder that was killed, and who loses a lock although its holder
// lives and is only cut off: ours, with and without a witness, and locks with a lease or a time to live. All servers,
// our programs and the holders are real processes. docs/benchmarks.md explains its output. A missing peer is an error.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/machine"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

type options struct {
	dir    string
	bin    string
	rounds int
	peers  int
	cut    time.Duration
	api    string
}

func main() {
	etcdtest.Member()
	holderMain()
	var o options
	flag.StringVar(&o.dir, "dir", "", "directory of the servers' data; default: a temporary one")
	flag.StringVar(&o.bin, "bin", "../bin", "directory with the program unlocker")
	flag.IntVar(&o.rounds, "rounds", 20, "how many holders are killed beside a witness, for each grace")
	flag.IntVar(&o.peers, "peer-rounds", 5, "how many holders are killed in every other case")
	flag.DurationVar(&o.cut, "cut", 30*time.Second, "how long a holder is cut off")
	flag.StringVar(&o.api, "kube-apiserver", "", "API server of Kubernetes; without it, holders in pods are left out")
	flag.Parse()
	machine.Main("deaths", &o.dir, func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	w := &world{}
	defer w.stop()
	cases, err := w.start(ctx, o)
	if err != nil {
		return err
	}
	living, err := bystanders(ctx, cases)
	if err != nil {
		return err
	}
	if err := measure(ctx, o, cases); err != nil {
		return err
	}
	fmt.Println(deathTable(cases))
	fmt.Println(cutTable(o.cut, cases))
	lost := 0
	for _, l := range living {
		if l.isLost() {
			lost++
		}
	}
	fmt.Printf("Of %d locks whose holders lived all the time, %d were taken away.\n", len(living), lost)
	return nil
}

// measure lets the case that takes milliseconds run alone, and then all others at the same time: they mostly wait.
func measure(ctx context.Context, o options, cases []*contender) error {
	if err := cases[0].deaths(ctx); err != nil {
		return err
	}
	var all []func() error
	for i, c := range cases {
		if i > 0 {
			all = append(all, func() error { return c.deaths(ctx) })
		}
		if c.cutOff {
			all = append(all, func() error { return c.cutting(ctx, o.cut) })
		}
	}
	return contest.Each(len(all), func(i int) error { return all[i]() })
}

// world is the servers and our programs.
type world struct {
	running []*servers.Process
	api     *kubetest.Server
}

func (w *world) stop() {
	if w.api != nil {
		w.api.Process.Kill()
	}
	for _, p := range w.running {
		p.Stop()
	}
}

// The times that are compared.
const (
	life     = 10 * time.Second // of a lease, and of a lock in Redis
	deadline = time.Minute      // AutoUnlockAfter where only the deadline ends a hold; by default it is 15 minutes
)

// start starts everything and returns what is compared, the fastest first.
func (w *world) start(ctx context.Context, o options) ([]*contender, error) {
	etcd, err := servers.Etcd(ctx, o.dir, servers.EtcdOptions{})
	if err != nil {
		return nil, err
	}
	w.running = append(w.running, etcd)
	redis, err := servers.Redis(ctx, o.dir, true)
	if err != nil {
		return nil, err
	}
	w.running = append(w.running, redis)
	const unlock = "--sweep.abandoned=unlock"
	for _, p := range []struct {
		prefix string
		args   []string
	}{
		{"/grace0/", []string{"--policy=auto-unlock", unlock, "--sweep.abandoned-grace=0s"}},
		{"/grace0/", []string{"witness"}},
		{"/grace10/", []string{"--policy=auto-unlock", unlock}},
		{"/grace10/", []string{"witness"}},
		{"/deadline/", []string{"--policy=auto-unlock"}},
	} {
		if err := w.program(ctx, o, etcd.Addr, p.prefix, p.args); err != nil {
			return nil, err
		}
	}
	pods, err := w.kubernetes(ctx, o, etcd.Addr)
	if err != nil {
		return nil, err
	}
	ours := func(prefix string) client { return client{Kind: kindOurs, Addr: etcd.Addr, Prefix: prefix} }
	byDeadline := ours("/deadline/")
	byDeadline.AutoUnlockAfter = deadline
	cases := []*contender{
		{name: "ours, witness on the machine, grace 0 s", client: ours("/grace0/"), rounds: o.rounds,
			lanes: 1, cutOff: true},
		{name: "ours, witness on the machine, grace 10 s (default)", client: ours("/grace10/"), rounds: o.rounds,
			lanes: 5, cutOff: true},
		{name: "ours, no witness, deadline of 60 s (`auto_unlock_at`)", client: byDeadline, rounds: o.peers,
			lanes: o.peers},
		{name: "etcd `concurrency.Mutex`, lease of 10 s", client: client{Kind: kindLease, Addr: etcd.Addr},
			rounds: o.peers, lanes: o.peers, cutOff: true},
		{name: "redislock, TTL of 10 s", client: client{Kind: kindRedis, Addr: redis.Addr}, rounds: o.peers,
			lanes: o.peers, cutOff: true},
	}
	if pods != nil {
		cases = append(cases, &contender{name: "ours, witness in Kubernetes, grace 0 s", client: ours("/pods/"),
			rounds: o.rounds, lanes: 5, cutOff: true, pods: pods})
	}
	return cases, nil
}

// program runs the unlocker, or its witness.
func (w *world) program(ctx context.Context, o options, etcd, prefix string, args []string) error {
	addr, err := proctest.FindAddr()
	if err != nil {
		return err
	}
	args = append(args, "--etcd.endpoints="+etcd, "--locks.prefix="+prefix, "--web.listen-address="+addr,
		"--web.shutdown-delay=0s", "--log.level=warn")
	dir := filepath.Join(o.dir, filepath.Base(prefix)+args[0])
	p, err := servers.Program(ctx, dir, filepath.Join(o.bin, "unlocker"), "http://"+addr+"/readyz", args...)
	if err != nil {
		return err
	}
	w.running = append(w.running, p)
	return nil
}

// bystanders takes some locks of ours that are held all the time, as in a world where most holders live.
func bystanders(ctx context.Context, cases []*contender) (living []held, err error) {
	for _, c := range cases {
		if c.client.Kind != kindOurs {
			continue
		}
		alive := c.client
		alive.AutoUnlockAfter = 0
		locks, err := alive.connect()
		if err != nil {
			return nil, err
		}
		for i := range 2 * c.rounds {
			l, err := locks.lock(ctx, fmt.Sprintf("living-%d", i))
			if err != nil {
				return nil, err
			}
			living = append(living, l)
		}
	}
	return living, nil
}
