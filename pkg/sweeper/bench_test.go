package sweeper_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// picture is a view of many locks that do not change except by removals.
type picture struct {
	mu      sync.Mutex
	started time.Time
	all     []*metadata.Record
	byName  map[string]*metadata.Record
	lags    []time.Duration
}

const manyLocks = 100_000

// newPicture has many held locks and some that expire one after the other, as far apart as every, beginning after
// first.
func newPicture(expiring int, first, every time.Duration) *picture {
	p := &picture{started: time.Now(), byName: map[string]*metadata.Record{}}
	for i := range manyLocks {
		r := &metadata.Record{
			Name: fmt.Sprintf("service-%03d/task/%d", i%500, i), UUID: "4be0643f-1d98-573b-97cd-ca98a65347dd",
			Token:    int64(i + 1),
			LockedAt: p.started, AlertAt: p.started.Add(time.Hour), AutoUnlockAt: p.started.Add(2 * time.Hour),
		}
		if i < expiring {
			r.AutoUnlockAt = p.started.Add(first + time.Duration(i)*every)
			r.AlertAt = p.started
		}
		p.all, p.byName[r.Name] = append(p.all, r), r
	}
	return p
}

func (p *picture) run(b *testing.B, policy staleness.Policy, d time.Duration) *sweeper.Sweeper {
	s, err := sweeper.New(sweeper.Config{
		ID: "bench", Mode: sweeper.AutoUnlock, Policy: policy,
		Locks: func() iter.Seq[*metadata.Record] { return slices.Values(p.all) },
		Lock: func(name string) *metadata.Record {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.byName[name]
		},
		Clock:    func() time.Duration { return time.Since(p.started) },
		Fresh:    func() sweeper.Freshness { return sweeper.Freshness{Synced: true, Revision: 1} },
		Announce: func(context.Context, metadata.Presence) (int64, uint64, error) { return 1, 1, nil },
		Offsets:  func(context.Context) []time.Duration { return []time.Duration{0} },
		Remove: func(_ context.Context, removals []metadata.Removal) []error {
			now := time.Now()
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, r := range removals {
				p.lags = append(p.lags, now.Sub(r.Record.AutoUnlockAt.Add(policy.ClockSkew)))
				delete(p.byName, r.Record.Name)
			}
			return make([]error, len(removals))
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkIdle shows the share of one CPU that a sweeper takes to watch 100,000 locks of which none is due.
func BenchmarkIdle(b *testing.B) {
	p := newPicture(0, 0, 0)
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const window = 15 * time.Second
	b.ResetTimer()
	before := used()
	for range b.N {
		p.run(b, staleness.DefaultPolicy(), window)
	}
	b.ReportMetric(100*float64(used()-before)/float64(time.Duration(b.N)*window), "%cpu")
}

// BenchmarkLag shows how late a removal is sent after the moment all rules allow it, with 100,000 locks held, of which
// one falls due every 10 ms, and a warning time so short that all of them are scanned twice a second.
func BenchmarkLag(b *testing.B) {
	policy := staleness.Policy{ClockSkew: time.Millisecond, MinWarning: time.Second}
	for range b.N {
		p := newPicture(1000, 1500*time.Millisecond, 10*time.Millisecond)
		p.run(b, policy, 12*time.Second)
		if len(p.lags) != 1000 {
			b.Fatalf("%d removed", len(p.lags))
		}
		slices.Sort(p.lags)
		b.ReportMetric(float64(p.lags[500].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(p.lags[990].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(p.lags[999].Microseconds())/1000, "max-ms")
	}
}

// BenchmarkMassExpiry measures the sweeper's own share when 10,000 of 100,000 locks are due at once.
func BenchmarkMassExpiry(b *testing.B) {
	policy := staleness.Policy{ClockSkew: time.Millisecond, MinWarning: time.Second}
	for range b.N {
		p := newPicture(10_000, 1500*time.Millisecond, 0)
		p.run(b, policy, 4*time.Second)
		if len(p.lags) != 10_000 {
			b.Fatalf("%d removed", len(p.lags))
		}
		b.ReportMetric(float64(slices.Max(p.lags).Milliseconds()), "ms/10000")
	}
}
