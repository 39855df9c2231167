// Command peers compares our locks with others, and with the limits of etcd, in one run on one machine: all take turns,
// several times, and the ratios count. docs/benchmarks.md explains its output. A missing peer is an error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/machine"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// us is the contestant that all others are compared with.
const us = "ours"

type options struct {
	dir     string
	work    string
	waiters string
	hold    time.Duration
	apart   bool
	only    string
	rounds  int
	turn    time.Duration
	start   time.Duration
	flush   time.Duration
	raw     string
}

func main() {
	etcdtest.Member()
	var o options
	flag.StringVar(&o.dir, "dir", "",
		"directory of the servers' data; default: a temporary one")
	flag.StringVar(&o.work, "work", "latency,throughput,handover", "the workloads")
	flag.StringVar(&o.waiters, "waiters", "2,10,100,1000",
		"how many clients wait for one lock in the workload handover")
	flag.DurationVar(&o.hold, "hold", 0, "how long clients keep the lock in the workload handover")
	flag.BoolVar(&o.apart, "apart", false, "give each client of the workload handover a connection of its own")
	flag.StringVar(&o.only, "only", "",
		"regular expression of the contestants besides ours; default: all")
	flag.IntVar(&o.rounds, "rounds", 5, "how many turns each contestant has")
	flag.DurationVar(&o.turn, "turn", 2*time.Second, "the measured time of a turn")
	flag.DurationVar(&o.start, "start", 30*time.Second,
		"how long to wait until all clients have had the lock once; the measurement starts then")
	flag.DurationVar(&o.flush, "flush", 0,
		"extra time for every flush of etcd; needs strace, and leaves out other servers")
	flag.StringVar(&o.raw, "raw", "", "file for all turns, as JSON lines")
	flag.Parse()
	machine.Main("peers", &o.dir, func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	works, err := o.works()
	if err != nil {
		return err
	}
	contestants, end, err := begin(ctx, o)
	defer end()
	if err != nil {
		return err
	}
	if o.flush > 0 {
		fmt.Printf("- but etcd's flushes take %v longer\n\n", o.flush)
	}
	var verdicts []verdict
	var all []done
	for _, w := range works {
		turns, err := contest.Run(ctx, w, contestants, o.rounds, keep(o.raw, w))
		if err != nil {
			return err
		}
		fmt.Println(table(w, contestants, turns))
		verdicts, all = append(verdicts, judge(w, turns)...), append(all, done{w, turns})
	}
	fmt.Println(summary(contestants, all))
	fmt.Println(targets(verdicts))
	return nil
}

// works returns the requested workloads.
func (o options) works() (works []contest.Work, err error) {
	for name := range strings.SplitSeq(o.work, ",") {
		switch name {
		case latency:
			works = append(works, contest.Work{Name: latency, Clients: 1, Length: o.turn, MaxStart: o.turn})
		case throughput:
			works = append(works, contest.Work{Name: throughput, Clients: 64, Length: o.turn, MaxStart: o.turn})
		case handover:
			for n := range strings.SplitSeq(o.waiters, ",") {
				waiters, err := strconv.Atoi(n)
				if err != nil || waiters < 2 {
					return nil, fmt.Errorf("-waiters: %q is not a number of waiters", n)
				}
				works = append(works, contest.Work{Name: handover, Clients: waiters, Contend: true, Hold: o.hold,
					Apart: o.apart, Length: o.turn, MaxStart: o.start})
			}
		default:
			return nil, fmt.Errorf("-work: %q is none of %s, %s, %s", name, latency, throughput, handover)
		}
	}
	return works, nil
}

// The workloads.
const (
	latency    = "latency"    // one client alone
	throughput = "throughput" // many clients, each with its own lock
	handover   = "handover"   // many clients that want one lock
)

// begin starts the servers that the contestants need.
func begin(ctx context.Context, o options) (all []contest.Contestant, end func(), err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, func() {}, fmt.Errorf("-only: %w", err)
	}
	var running []*servers.Process
	end = func() {
		for _, p := range running {
			p.Stop()
		}
	}
	others := o.flush == 0
	wanted := func(names ...string) bool {
		return slices.ContainsFunc(names, only.MatchString)
	}
	etcd, err := servers.Etcd(ctx, o.dir, servers.EtcdOptions{Flush: o.flush})
	if err != nil {
		return nil, end, err
	}
	running = append(running, etcd)
	all = etcdContestants(etcd)
	for suffix, flush := range map[string]bool{"": false, ", fsync": true} {
		if !others || !wanted("redislock"+suffix, "redsync"+suffix) {
			continue
		}
		p, err := servers.Redis(ctx, o.dir, flush)
		if err != nil {
			return nil, end, err
		}
		running, all = append(running, p), append(all, redisContestants(p, suffix)...)
	}
	if others && wanted("ZooKeeper") {
		p, err := servers.ZooKeeper(ctx, o.dir)
		if err != nil {
			return nil, end, err
		}
		running, all = append(running, p), append(all, zookeeperContestant(p))
	}
	all = slices.DeleteFunc(all, func(c contest.Contestant) bool { return c.Name != us && !wanted(c.Name) })
	slices.SortStableFunc(all, func(a, b contest.Contestant) int { return strings.Compare(order(a), order(b)) })
	return all, end, nil
}

// order puts those on etcd first, in their order, then the rest by name.
func order(c contest.Contestant) string {
	if strings.HasPrefix(c.Name, "red") || c.Name == "ZooKeeper" {
		return c.Name
	}
	return ""
}

// keep writes every turn to a file, and a line of progress to stderr.
func keep(file string, w contest.Work) func(contest.Turn) {
	return func(t contest.Turn) {
		fmt.Fprintf(os.Stderr, "%s of %d: %s: %.0f/s (load %.1f)\n", w.Name, w.Clients, t.Contestant, t.Rate(w.Contend),
			t.Load)
		err := contest.Keep(file, struct {
			At   time.Time
			Work contest.Work
			Turn contest.Turn
		}{time.Now(), w, t.Printable()})
		if err != nil {
			fmt.Fprintln(os.Stderr, "peers: keep raw figures:", err)
		}
	}
}
