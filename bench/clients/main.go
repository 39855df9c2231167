// Command clients measures what an uncontended lock and its release take with the client of each language, beside the
// library for Go, in one run on one etcd. All take turns. docs/benchmarks.md has its output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/machine"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/bench/stats"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func main() {
	etcdtest.Member()
	n := flag.Int("n", 500, "how many locks each client takes and releases")
	rounds := flag.Int("rounds", 10, "in how many turns")
	sources := flag.String("clients", "../clients", "directory of the clients, with clients/typescript built")
	flag.Parse()
	dir := ""
	machine.Main("clients", &dir, func(ctx context.Context) error { return run(ctx, dir, *sources, *n, *rounds) })
}

func run(ctx context.Context, dir, sources string, n, rounds int) (err error) {
	if rounds < 1 || n < rounds {
		return fmt.Errorf("%d locks in %d turns: each turn needs one", n, rounds)
	}
	if sources, err = filepath.Abs(sources); err != nil {
		return err
	}
	etcd, err := servers.Etcd(ctx, dir, servers.EtcdOptions{Gateway: true})
	if err != nil {
		return err
	}
	defer etcd.Stop()
	contestants, err := begin(etcd.Addr, sources)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range contestants {
			err = errors.Join(err, c.worker.end())
		}
	}()
	for _, c := range contestants {
		if _, err := c.worker.take(5); err != nil { // connections, caches
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for range rounds {
		for _, c := range contestants {
			if err := c.turn(ctx, etcd.Addr, n/rounds); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	fmt.Print(table(contestants))
	return nil
}

// contestant is a client and what was measured of it.
type contestant struct {
	name   string
	worker worker
	took   []time.Duration
	counts servers.EtcdCounts // of all turns
}

// turn takes and releases n locks.
func (c *contestant) turn(ctx context.Context, etcd string, n int) error {
	before, err := servers.ReadEtcd(ctx, etcd)
	if err != nil {
		return err
	}
	took, err := c.worker.take(n)
	if err != nil {
		return err
	}
	after, err := servers.ReadEtcd(ctx, etcd)
	c.took = append(c.took, took...)
	c.counts.Requests += after.Requests - before.Requests
	c.counts.Watches += after.Watches - before.Watches
	c.counts.Commits += after.Commits - before.Commits
	return err
}

// table shows all contestants; the first one is what the others are compared with.
func table(all []*contestant) string {
	var b strings.Builder
	b.WriteString("| lock and release | n | p50 ms | p95 ms | ÷ the first | requests | watch msgs | commits |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		n := float64(len(c.took))
		p50, first := stats.Percentile(c.took, 50), stats.Percentile(all[0].took, 50)
		fmt.Fprintf(&b, "| %s | %d | %.1f | %.1f | %s | %.1f | %.1f | %.1f |\n", c.name, len(c.took),
			stats.Milliseconds(p50),
			stats.Milliseconds(stats.Percentile(c.took, 95)), times(float64(p50)/float64(first)), c.counts.Requests/n,
			c.counts.Watches/n,
			c.counts.Commits/n)
	}
	return b.String()
}

// times shows a ratio with two digits.
func times(x float64) string {
	if x < 9.95 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
