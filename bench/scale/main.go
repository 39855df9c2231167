// Command scale measures how cost grows with the number of locks: it generates them in an etcd on a disk, and lets the
// view, the unlocker and the dashboard work with them. docs/benchmarks.md explains its output.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/machine"
	"github.com/clustermutex/unlocker/bench/servers"
)

type options struct {
	dir   string
	locks string
	bin   string
	raw   string
}

func main() {
	servers.Main()
	var o options
	flag.StringVar(&o.dir, "dir", "", "directory of etcd's data; default: a temporary one")
	flag.StringVar(&o.locks, "locks", "10000,100000,1000000", "numbers of locks, ascending")
	flag.StringVar(&o.bin, "bin", "../bin", "directory with the programs unlocker and mutexdash")
	flag.StringVar(&o.raw, "raw", "", "file for all figures, as JSON lines")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// quota is the size limit of etcd's store: a million locks exceed the default of 2 GiB.
const quota = 8 << 30

func run(ctx context.Context, o options) (err error) {
	sizes, err := o.sizes()
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "bench-scale-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	etcd, err := servers.Etcd(ctx, o.dir, servers.EtcdOptions{Quota: quota})
	if err != nil {
		return err
	}
	defer etcd.Stop()
	about, err := machine.Describe(o.dir)
	if err != nil {
		return err
	}
	fmt.Println(about)
	c, err := newCrowd(etcd)
	if err != nil {
		return err
	}
	defer c.etcd.Close()
	var columns []figures
	for _, n := range sizes {
		f, err := measure(ctx, o, c, n)
		if err != nil {
			return fmt.Errorf("%d locks: %w", n, err)
		}
		columns = append(columns, f)
		if err := keep(o.raw, n, f); err != nil {
			return err
		}
	}
	fmt.Println(table(sizes, columns))
	return nil
}

func (o options) sizes() (sizes []int, err error) {
	for text := range strings.SplitSeq(o.locks, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2*alerting || len(sizes) > 0 && n <= sizes[len(sizes)-1] {
			return nil, fmt.Errorf("-locks: %q: want ascending numbers from %d", o.locks, 2*alerting)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// figures are the measurements with one number of locks, by the key of a row.
type figures map[string]float64

// measure adds locks until there are n, and measures everything.
func measure(ctx context.Context, o options, c *crowd, n int) (figures, error) {
	f := figures{"load": contest.Load()}
	for _, step := range []struct {
		what string
		do   func(context.Context, figures) error
	}{
		{"generate", func(ctx context.Context, f figures) error { return c.growTo(ctx, n, f) }},
		{"view", c.view},
		{"unlocker", func(ctx context.Context, f figures) error { return c.unlocker(ctx, o, f) }},
		{"dashboard", func(ctx context.Context, f figures) error { return c.dashboard(ctx, o, f) }},
	} {
		began := time.Now()
		if err := step.do(ctx, f); err != nil {
			return f, fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(os.Stderr, "%d locks: %s: %.1f s (load %.1f)\n", n, step.what, time.Since(began).Seconds(),
			contest.Load())
	}
	return f, nil
}

// keep adds the figures to a file.
func keep(file string, n int, f figures) error {
	if file == "" {
		return nil
	}
	line, err := json.Marshal(struct {
		At      time.Time
		Locks   int
		Figures figures
	}{time.Now(), n, f})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = out.Write(append(line, '\n'))
	return err
}
