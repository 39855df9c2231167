package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/bench/stats"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// The unlocker's policy, with times that are short enough for a benchmark.
const (
	skew       = time.Second
	minWarning = 2 * time.Second
)

// startUnlocker starts an unlocker with its default policy but for what args change, and returns its address.
func (c *crowd) startUnlocker(ctx context.Context, o options, args ...string) (*servers.Process, string, error) {
	addr, err := proctest.FindAddr()
	if err != nil {
		return nil, "", err
	}
	args = append([]string{"--policy=auto-unlock", "--etcd.endpoints=" + c.server.Addr, "--web.listen-address=" + addr,
		"--web.shutdown-delay=0s", "--log.level=warn"}, args...)
	p, err := servers.Program(ctx, o.dir, filepath.Join(o.bin, "unlocker"), "http://"+addr+"/readyz", args...)
	return p, addr, err
}

// startDashboard starts a dashboard, and returns the addresses of its pages and of its metrics.
func (c *crowd) startDashboard(ctx context.Context, o options) (p *servers.Process, page, ops string, err error) {
	page, err = proctest.FindAddr()
	if err != nil {
		return nil, "", "", err
	}
	if ops, err = proctest.FindAddr(); err != nil {
		return nil, "", "", err
	}
	args := []string{"--etcd.endpoints=" + c.server.Addr, "--web.listen-address=" + page, "--web.ops-address=" + ops,
		"--web.shutdown-delay=0s", "--log.level=error"}
	p, err = servers.Program(ctx, o.dir, filepath.Join(o.bin, "mutexdash"), "http://"+ops+"/readyz", args...)
	return p, page, ops, err
}

// programs measures both programs as they are started by default, one after the other and then side by side: how soon
// they are ready, their memory, and what they use when idle.
func (c *crowd) programs(ctx context.Context, o options, f figures) error {
	began := time.Now()
	if err := c.stream(ctx); err != nil {
		return err
	}
	bare := time.Since(began).Seconds()
	began = time.Now()
	unlocker, addr, err := c.startUnlocker(ctx, o)
	if err != nil {
		return err
	}
	defer unlocker.Stop()
	f["unlocker ready"] = time.Since(began).Seconds()
	began = time.Now()
	dashboard, page, ops, err := c.startDashboard(ctx, o)
	if err != nil {
		return err
	}
	defer dashboard.Stop()
	f["dashboard ready"] = time.Since(began).Seconds()
	f["unlocker times bare"], f["dashboard times bare"] = f["unlocker ready"]/bare, f["dashboard ready"]/bare
	for range 3 { // a page and a scrape belong to what a program does
		for _, address := range []string{page + "/", ops + "/metrics", addr + "/metrics"} {
			if _, _, err := get(ctx, 1, func(int) string { return "http://" + address }); err != nil {
				return err
			}
		}
	}
	return idle(ctx, f, map[string]*servers.Process{"unlocker": unlocker, "dashboard": dashboard})
}

// scrapes is how often the metrics of a program are read.
const scrapes = 40

// unlocker measures a scrape, and the removal of locks, of many that are due at once, too.
func (c *crowd) unlocker(ctx context.Context, o options, f figures) error {
	p, addr, err := c.startUnlocker(ctx, o, "--sweep.clock-skew="+skew.String(),
		"--sweep.min-warning="+minWarning.String())
	if err != nil {
		return err
	}
	defer p.Stop()
	took, size, err := get(ctx, scrapes, func(int) string { return "http://" + addr + "/metrics" })
	if err != nil {
		return err
	}
	f["unlocker scrape"], f["scrape bytes"] = stats.Milliseconds(stats.Percentile(took, 95)), size
	if err := c.lag(ctx, f); err != nil {
		return err
	}
	return c.removal(ctx, f)
}

// idle measures what programs use while no lock changes.
func idle(ctx context.Context, f figures, programs map[string]*servers.Process) error {
	const window = 20 * time.Second
	// until the garbage of the start is collected
	if err := contest.Wait(ctx, 10*time.Second); err != nil {
		return err
	}
	before := map[string]time.Duration{}
	for name, p := range programs {
		var err error
		if before[name], err = p.CPU(); err != nil {
			return err
		}
	}
	if err := contest.Wait(ctx, window); err != nil {
		return err
	}
	for name, p := range programs {
		after, err := p.CPU()
		if err != nil {
			return err
		}
		memory, err := p.Memory()
		if err != nil {
			return err
		}
		peak, err := p.Peak()
		if err != nil {
			return err
		}
		f[name+" idle"] = 100 * (after - before[name]).Seconds() / window.Seconds()
		f[name+" memory"], f[name+" peak"] = float64(memory)/(1<<20), float64(peak)/(1<<20)
	}
	return nil
}

// removal lets locks become due at once, too few to engage the unlocker's brake.
func (c *crowd) removal(ctx context.Context, f figures) error {
	n := min(10_000, len(c.tokens)/4)
	autoUnlockAt := time.Now().Add(minWarning + time.Duration(n/1000+6)*time.Second)
	removed, err := c.removals(ctx, "due", n, func(int) time.Time { return autoUnlockAt })
	if err != nil {
		return err
	}
	first := removed[0]
	last := removed[0]
	for _, late := range removed {
		first, last = min(first, late), max(last, late)
	}
	f["first removal"], f["removals"] = stats.Milliseconds(first), float64(n)/last.Seconds()
	return nil
}

// lag lets locks become due one after the other.
func (c *crowd) lag(ctx context.Context, f figures) error {
	const n, apart = 300, 20 * time.Millisecond
	began := time.Now().Add(minWarning + 4*time.Second)
	removed, err := c.removals(ctx, "one", n, func(i int) time.Time { return began.Add(time.Duration(i) * apart) })
	f["removal p50"], f["removal p99"] = stats.Milliseconds(stats.Percentile(removed,
		50)), stats.Milliseconds(stats.Percentile(removed, 99))
	return err
}

// dueFrom is the number of the first lock that is to be removed: none of those that stay has its uuid.
const dueFrom = 50_000_000

// removals takes n locks and returns for each how long after its due time it was removed. It follows the endings, which
// the removals write: one event for each lock, where its keys would be eight, so that measuring costs little.
func (c *crowd) removals(ctx context.Context, kind string, n int,
	autoUnlockAt func(i int) time.Time) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	endings := c.etcd.Watch(ctx, c.layout.Histories(), clientv3.WithPrefix(), clientv3.WithFilterDelete(),
		clientv3.WithCreatedNotify())
	if r := <-endings; r.Err() != nil {
		return nil, r.Err()
	}
	now := time.Now()
	first := dueFrom + c.due
	c.due += n
	due := func(i int) string { return fmt.Sprintf("%s-%05d", kind, i-first) }
	err := c.take(ctx, first, first+n, due,
		func(i int) (time.Time, time.Time) { return now, autoUnlockAt(i - first) }, func(int, int64) {})
	if err != nil {
		return nil, err
	}
	if left := time.Until(autoUnlockAt(0)); left < minWarning {
		return nil, fmt.Errorf("taking the locks took too long: %v are left", left)
	}
	var late []time.Duration
	for len(late) < n {
		r, ok := <-endings
		if !ok || r.Err() != nil {
			return nil, fmt.Errorf("%d of %d were removed: %w", len(late), n, ctx.Err())
		}
		for _, e := range r.Events {
			i, err := number(c.layout.Parse(string(e.Kv.Key)).ID)
			if err != nil {
				return nil, err
			}
			late = append(late, time.Since(autoUnlockAt(i-first).Add(skew)))
		}
	}
	left, err := c.etcd.Get(ctx, c.layout.Prefix()+kind+"-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && left.Count > 0 {
		err = fmt.Errorf("%d keys of the removed locks are left", left.Count)
	}
	return late, err
}

// dashboard measures a scrape, and the response times of pages.
func (c *crowd) dashboard(ctx context.Context, o options, f figures) error {
	p, addr, ops, err := c.startDashboard(ctx, o)
	if err != nil {
		return err
	}
	defer p.Stop()
	took, _, err := get(ctx, scrapes, func(int) string { return "http://" + ops + "/metrics" })
	if err != nil {
		return err
	}
	f["dashboard scrape"] = stats.Milliseconds(stats.Percentile(took, 95))
	page := "http://" + addr
	if _, _, err := get(ctx, 3, func(int) string { return page + "/" }); err != nil {
		return err
	}
	for _, w := range []struct {
		row     string
		address func(i int) string
		change  bool
	}{
		{"page", func(int) string { return "/" }, false},
		{"page after a change", func(int) string { return "/" }, true},
		{"search", func(i int) string { return fmt.Sprintf("/?q=tenant-%05d", i) }, false},
		{"lock page", func(i int) string { return "/lock?name=" + url.QueryEscape(name(i)) }, false},
	} {
		var took []time.Duration
		for i := range 20 {
			if w.change {
				if _, err := c.extend(ctx, c.calm(i)); err != nil {
					return err
				}
				if err := contest.Wait(ctx, 1200*time.Millisecond); err != nil { // a snapshot is at most a second old
					return err
				}
			}
			one, _, err := get(ctx, 1, func(int) string { return page + w.address(i) })
			if err != nil {
				return err
			}
			took = append(took, one...)
		}
		f[w.row] = stats.Milliseconds(stats.Percentile(took, 95))
		f[w.row+" p50"] = stats.Milliseconds(stats.Percentile(took, 50))
	}
	return nil
}

// get requests n pages and returns how long each answer took, and the size of the last.
func get(ctx context.Context, n int, address func(i int) string) (took []time.Duration, size float64, err error) {
	for i := range n {
		began := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address(i), nil)
		if err != nil {
			return nil, 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, 0, err
		}
		body, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", address(i), err)
		}
		if resp.StatusCode != http.StatusOK {
			return nil, 0, fmt.Errorf("%s: %s", address(i), resp.Status)
		}
		took, size = append(took, time.Since(began)), float64(body)
	}
	return took, size, nil
}
