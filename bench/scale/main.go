// Command scale measures how cost grows with the number of locks: it generates them in an etcd on a disk, and lets the
// view, the unlocker and the dashboard work with them. docs/benchmarks.md explains its output.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/machine"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

type options struct {
	dir     string
	locks   string
	layouts string
	parts   string
	bin     string
	raw     string
	rounds  int
}

func main() {
	etcdtest.Member()
	var o options
	flag.StringVar(&o.dir, "dir", "", "directory of etcd's data; default: a temporary one")
	flag.StringVar(&o.locks, "locks", "10000,100000", "numbers of locks, ascending")
	flag.StringVar(&o.layouts, "layouts", "own",
		"how records are written: own (four keys, one of them a document), plain (eight keys), or own,plain")
	flag.StringVar(&o.parts, "parts", "load,changes,programs,unlocker,dashboard",
		"what to measure; also waiters: 4000 of them, and mass: 10,000 locks that expire at once")
	flag.StringVar(&o.bin, "bin", "../bin", "directory with the programs unlocker and mutexdash")
	flag.StringVar(&o.raw, "raw", "", "file for all figures, as JSON lines")
	flag.IntVar(&o.rounds, "rounds", 3, "how often everything in the part mass takes its turn")
	flag.Parse()
	machine.Main("scale", &o.dir, func(ctx context.Context) error { return run(ctx, o) })
}

// quota is the size limit of etcd's store: many locks, and what the benchmarks write, exceed the default of 2 GiB.
const quota = 8 << 30

func run(ctx context.Context, o options) error {
	sizes, err := o.sizes()
	if err != nil {
		return err
	}
	layouts := strings.Split(o.layouts, ",")
	for _, layout := range layouts {
		if layout != "own" && layout != "plain" {
			return fmt.Errorf("-layouts: %q is neither own nor plain", layout)
		}
	}
	if err := o.checkParts(); err != nil {
		return err
	}
	for _, layout := range layouts {
		columns, err := grow(ctx, o, layout, sizes)
		if err != nil {
			return err
		}
		fmt.Printf("Layout: %s.\n\n%s\n", layout, table(sizes, columns))
	}
	return nil
}

// grow measures an etcd of its own with locks in this layout, at all sizes.
func grow(ctx context.Context, o options, layout string, sizes []int) (columns []figures, err error) {
	o.dir = filepath.Join(o.dir, layout)
	etcd, err := servers.Etcd(ctx, o.dir, servers.EtcdOptions{Quota: quota})
	if err != nil {
		return nil, err
	}
	defer etcd.Stop()
	c, err := newCrowd(etcd, layout == "plain")
	if err != nil {
		return nil, err
	}
	defer c.etcd.Close()
	for _, n := range sizes {
		f, err := measure(ctx, o, c, n)
		if err != nil {
			return nil, fmt.Errorf("%d locks: %w", n, err)
		}
		columns = append(columns, f)
		err = contest.Keep(o.raw, struct {
			At      time.Time
			Layout  string
			Locks   int
			Figures figures
		}{time.Now(), layout, n, f})
		if err != nil {
			return nil, err
		}
	}
	return columns, nil
}

// parts are what can be measured once the locks are there, in order.
func parts() []string {
	return []string{"load", "changes", "waiters", "programs", "unlocker", "dashboard", "mass"}
}

func (o options) checkParts() error {
	for part := range strings.SplitSeq(o.parts, ",") {
		if !slices.Contains(parts(), part) {
			return fmt.Errorf("-parts: %q is none of %s", part, strings.Join(parts(), ", "))
		}
	}
	return nil
}

// has reports whether the part is to be measured.
func (o options) has(part string) bool { return slices.Contains(strings.Split(o.parts, ","), part) }

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
	steps := []struct {
		what string
		do   func(context.Context, figures) error
	}{
		{"generate", func(ctx context.Context, f figures) error { return c.growTo(ctx, n, f) }},
		{"load", c.load},
		{"changes", c.changes},
		{"waiters", c.waiters},
		{"programs", func(ctx context.Context, f figures) error { return c.programs(ctx, o, f) }},
		{"unlocker", func(ctx context.Context, f figures) error { return c.unlocker(ctx, o, f) }},
		{"dashboard", func(ctx context.Context, f figures) error { return c.dashboard(ctx, o, f) }},
		{"mass", func(ctx context.Context, f figures) error { return c.mass(ctx, o, f) }},
	}
	for i, step := range steps {
		if i > 0 && !o.has(step.what) {
			continue
		}
		began := time.Now()
		if err := step.do(ctx, f); err != nil {
			return f, fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(os.Stderr, "%d locks: %s: %.1f s (load %.1f)\n", n, step.what, time.Since(began).Seconds(),
			contest.Load())
	}
	return f, nil
}
