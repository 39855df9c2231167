package sweeper_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

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
