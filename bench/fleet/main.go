// Command fleet simulates more locks than one etcd can carry: it measures what a lock costs an etcd on this machine,
// and computes what each of several clusters would have to carry. docs/benchmarks.md explains its output.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/machine"
	"github.com/clustermutex/unlocker/bench/servers"
)

type options struct {
	dir      string
	clusters string
	load     load
	limits   limits
}

func main() {
	servers.Main()
	o := options{load: load{seed: 1}}
	flag.StringVar(&o.dir, "dir", "", "directory of etcd's data; default: a temporary one")
	flag.StringVar(&o.clusters, "clusters", "1,4,16,32,64,128", "numbers of clusters")
	flag.IntVar(&o.load.locks, "locks", 10_000_000, "locks that are held at any time")
	flag.IntVar(&o.load.clients, "clients", 100_000, "processes that hold them")
	flag.IntVar(&o.load.segments, "segments", 5000, "first segments of the names, which differ in size")
	flag.DurationVar(&o.load.hold, "hold", 10*time.Minute, "median time for which a lock is held")
	flag.DurationVar(&o.load.extend, "extend", time.Minute, "time between two extensions of a hold")
	flag.Float64Var(&o.load.aligned, "aligned", 0.2, "share of the holds that begin in the first second of a minute")
	flag.DurationVar(&o.load.away, "away", 30*time.Second, "how long a cluster is away before it returns")
	flag.Float64Var(&o.limits.use, "max-use", 0.6, "largest share of a cluster's throughput to plan with")
	flag.Int64Var(&o.limits.store, "max-store", 8<<30, "largest store of a cluster, bytes")
	flag.Int64Var(&o.limits.memory, "max-memory", 16<<30, "largest memory of an etcd member, bytes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	sizes, err := numbers(o.clusters)
	if err != nil {
		return fmt.Errorf("-clusters: %w", err)
	}
	if err := o.load.check(); err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "bench-fleet-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	about, err := machine.Describe(o.dir)
	if err != nil {
		return err
	}
	fmt.Println(about)
	costs, err := measure(ctx, o.dir)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	fmt.Println(costs)
	var columns []outcome
	world := newWorld(o.load)
	for _, n := range sizes {
		began := time.Now()
		columns = append(columns, world.simulate(n, costs, o.limits))
		fmt.Fprintf(os.Stderr, "%d clusters: simulated in %.1f s\n", n, time.Since(began).Seconds())
	}
	fmt.Println(table(sizes, columns))
	return ctx.Err()
}

func numbers(list string) (ns []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want numbers from 1, such as 1,4,16", list)
		}
		ns = append(ns, n)
	}
	return ns, nil
}
