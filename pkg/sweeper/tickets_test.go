package sweeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

func TestOverdueTicketsAreRemoved(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*node, *sweeper.Config)
		want   bool
	}{
		{"by an unlocker that removes", func(*node, *sweeper.Config) {}, true},
		{"not by one that only alerts", func(_ *node, c *sweeper.Config) { c.Mode = sweeper.AlertOnly }, false},
		{"not in a dry run", func(_ *node, c *sweeper.Config) { c.Mode = sweeper.DryRun }, false},
		{"not with a clock that nobody verified", withoutMembers, false},
		{"not after etcd went back", func(_ *node, c *sweeper.Config) {
			revision := int64(1_000_000)
			c.Announce = func(context.Context, metadata.Presence) (int64, uint64, error) { revision--; return revision, 2, nil }
		}, false},
		{"not from a view that is not fresh", func(_ *node, c *sweeper.Config) { c.Fresh = func() sweeper.Freshness { return sweeper.Freshness{} } }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				waiters := []metadata.Waiter{
					{Lock: "a", ID: "patient", Place: 1},
					{Lock: "a", ID: "overdue", Place: 2, Ticket: metadata.Ticket{TimeoutAt: metadata.Time{Time: start.Add(time.Minute)}}},
					{Lock: "a", ID: "later", Place: 3, Ticket: metadata.Ticket{TimeoutAt: metadata.Time{Time: start.Add(10 * time.Hour)}}},
				}
				removed := map[string]time.Duration{}
				s := newStore()
				s.join(t, func(_ *node, c *sweeper.Config) {
					c.Queues = func() map[string][]metadata.Waiter { return map[string][]metadata.Waiter{"a": waiters} }
					c.RemoveTicket = func(_ context.Context, w metadata.Waiter) error {
						if _, again := removed[w.ID]; again {
							return metadata.ErrChanged
						}
						removed[w.ID] = time.Since(start)
						return nil
					}
				}, c.change)
				s.wait(time.Hour)
				after, gone := removed["overdue"]
				if gone != c.want || len(removed) > 1 || gone && (after < time.Minute+skew || after > time.Minute+skew+5*time.Second) {
					t.Errorf("removed %v", removed)
				}
			})
		})
	}
}
