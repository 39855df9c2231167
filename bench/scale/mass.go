package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/bench/stats"
	"github.com/clustermutex/unlocker/internal/locktxn"
)

// massive is how many locks, or leases, expire at once. More locks must live, or the unlocker's brake engages.
const massive = 10_000

// mass measures what the daemon removes in a second when many locks expire at once, against the expiry of as many
// leases by etcd itself, and what others feel meanwhile.
func (c *crowd) mass(ctx context.Context, o options, f figures) error {
	if len(c.tokens) <= massive {
		return fmt.Errorf("mass needs more than %d locks that stay", massive)
	}
	p, _, err := c.startUnlocker(ctx, o, "--sweep.clock-skew="+skew.String(),
		"--sweep.min-warning="+minWarning.String())
	if err != nil {
		return err
	}
	defer p.Stop()
	all := map[string][]float64{}
	for round := range o.rounds {
		leases, err := c.leases(ctx)
		if err != nil {
			return fmt.Errorf("leases: %w", err)
		}
		quiet, err := c.expire(ctx, p, fmt.Sprintf("quiet%d", round), false)
		if err != nil {
			return err
		}
		alone, err := c.alone(ctx)
		if err != nil {
			return err
		}
		beside, err := c.expire(ctx, p, fmt.Sprintf("beside%d", round), true)
		if err != nil {
			return err
		}
		for key, x := range map[string]float64{
			"leases": leases, "mass": quiet.rate, "mass times": quiet.rate / leases, "mass beside": beside.rate,
			"mass daemon": quiet.daemon, "mass etcd": quiet.etcd,
			"alone p99": alone, "beside p99": beside.p99, "beside times": beside.p99 / alone,
		} {
			all[key] = append(all[key], x)
		}
		fmt.Fprintf(os.Stderr, "round %d: %.0f leases/s, %.0f locks/s (%.1f ×; %.0f and %.0f µs of daemon and etcd "+
			"for each), %.0f beside others, who take %.1f ms instead of %.1f (%.1f ×)\n", round, leases, quiet.rate,
			quiet.rate/leases, quiet.daemon, quiet.etcd, beside.rate, beside.p99, alone, beside.p99/alone)
	}
	for key, xs := range all {
		f[key] = stats.Median(xs)
	}
	return nil
}

// expired is what many locks that expired at once did.
type expired struct {
	rate         float64 // that the daemon removed a second
	daemon, etcd float64 // processor time of both for each lock, in µs
	p99          float64 // of what others took meanwhile, in ms
}

// expire lets locks expire at once, beside others if wanted.
func (c *crowd) expire(ctx context.Context, daemon *servers.Process, kind string, beside bool) (expired, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var e expired
	taking := time.Duration(3 * massive / c.rate * float64(time.Second))
	autoUnlockAt := time.Now().Add(2*minWarning + taking)
	meanwhile := []func() error{
		func() (err error) {
			e.daemon, e.etcd, err = c.spent(ctx, daemon)
			return err
		},
	}
	if beside {
		meanwhile = append(meanwhile, func() error {
			took, err := c.others(ctx)
			e.p99 = stats.Milliseconds(stats.Percentile(took, 99))
			return err
		})
	}
	done := make(chan error, len(meanwhile))
	for _, f := range meanwhile {
		go func() {
			err := contest.Wait(ctx, time.Until(autoUnlockAt.Add(skew)))
			if err == nil {
				err = f()
			}
			done <- err
		}()
	}
	removed, err := c.removals(ctx, kind, massive, func(int) time.Time { return autoUnlockAt })
	cancel()
	for range meanwhile {
		if otherErr := <-done; err == nil && otherErr != nil {
			err = otherErr
		}
	}
	if err != nil {
		return e, err
	}
	e.rate = massive / slices.Max(removed).Seconds()
	return e, nil
}

// spent returns the processor time that the daemon and etcd use until ctx ends, in µs for each lock that expires.
func (c *crowd) spent(ctx context.Context, daemon *servers.Process) (ours, etcds float64, err error) {
	processes := [2]*servers.Process{daemon, c.server}
	var before [2]time.Duration
	for i, p := range processes {
		if before[i], err = p.CPU(); err != nil {
			return 0, 0, err
		}
	}
	<-ctx.Done()
	var each [2]float64
	for i, p := range processes {
		after, err := p.CPU()
		if err != nil {
			return 0, 0, err
		}
		each[i] = (after - before[i]).Seconds() * 1e6 / massive
	}
	return each[0], each[1], nil
}

// alone returns the 99th percentile of what others take while no lock expires, in ms.
func (c *crowd) alone(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	took, err := c.others(ctx)
	return stats.Milliseconds(stats.Percentile(took, 99)), err
}

// others has 16 clients take and release locks of their own until ctx ends, and returns how long each time took.
func (c *crowd) others(ctx context.Context) (took []time.Duration, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.server.Addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var mu sync.Mutex
	next := 0
	err = contest.Each(16, func(int) error {
		mu.Lock()
		i := 90_000_000 + next
		next++
		mu.Unlock()
		for ctx.Err() == nil {
			began := time.Now()
			fields, err := c.fields(i, began.Add(time.Hour), began.Add(2*time.Hour))
			if err != nil {
				return err
			}
			take := locktxn.Acquire(c.layout, locktxn.PlainClaim(name(i)), uuid(i), fields, false)
			resp, err := take.Commit(context.Background(), client)
			if err != nil {
				return err
			}
			if !resp.Succeeded {
				return fmt.Errorf("lock %q is held already", name(i))
			}
			hold := locktxn.Hold{Lock: name(i), UUID: uuid(i), Token: resp.Header.Revision}
			if _, err := locktxn.Release(c.layout, hold).Commit(context.Background(), client); err != nil {
				return err
			}
			d := time.Since(began)
			mu.Lock()
			took = append(took, d)
			mu.Unlock()
		}
		return nil
	})
	return took, err
}

// leases lets as many keys expire with leases of their own, and returns how many etcd deletes a second.
func (c *crowd) leases(ctx context.Context) (float64, error) {
	const ttl = 30
	ids := make(chan int)
	granted := make([]clientv3.LeaseID, massive)
	send := func(do func(i int) error) error {
		ids = make(chan int)
		go func() {
			defer close(ids)
			for i := range massive {
				ids <- i
			}
		}()
		return contest.Each(64, func(int) error {
			var failed error
			for i := range ids {
				if err := do(i); err != nil {
					failed = err
				}
			}
			return failed
		})
	}
	gone := c.etcd.Watch(ctx, "/leased/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if r := <-gone; r.Err() != nil {
		return 0, r.Err()
	}
	err := send(func(i int) error {
		resp, err := c.etcd.Grant(ctx, ttl)
		if err != nil {
			return err
		}
		granted[i] = resp.ID
		_, err = c.etcd.Put(ctx, fmt.Sprintf("/leased/%05d", i), "", clientv3.WithLease(resp.ID))
		return err
	})
	if err != nil {
		return 0, err
	}
	// let them begin together
	err = send(func(i int) error {
		_, err := c.etcd.KeepAliveOnce(ctx, granted[i])
		return err
	})
	if err != nil {
		return 0, err
	}
	var first, last time.Time
	for n := 0; n < massive; {
		r, ok := <-gone
		if !ok || r.Err() != nil {
			return 0, fmt.Errorf("%d of %d expired: %w", n, massive, r.Err())
		}
		if first.IsZero() {
			first = time.Now()
		}
		n += len(r.Events)
		last = time.Now()
	}
	return massive / last.Sub(first).Seconds(), nil
}
