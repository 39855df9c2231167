package sweeper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
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
			c.Announce = func(context.Context, metadata.Presence) (int64, uint64, error) {
				revision--
				return revision, 2, nil
			}
		}, false},
		{"not from a view that is not fresh",
			func(n *node, _ *sweeper.Config) { n.stale = &protocol.Freshness{} }, false},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			start := time.Now()
			waiters := []metadata.Waiter{
				{Name: "a", ID: "patient", Revision: 1},
				{Name: "a", ID: "overdue", Revision: 2, Ticket: waits(start, time.Minute)},
				{Name: "a", ID: "later", Revision: 3, Ticket: waits(start, 10*time.Hour)},
				{Name: "a", ID: "of unknown age", Revision: 4,
					Ticket: metadata.Ticket{TimeoutAt: metadata.Time{Time: start.Add(time.Minute)}}},
			}
			removed := map[string]time.Duration{}
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
			if gone != c.want || len(removed) > 1 || gone &&
				(after < time.Minute+skew || after > time.Minute+skew+5*time.Second) {
				t.Errorf("removed %v", removed)
			}
		}))
	}
}

// waits returns the ticket of a waiter whose clock shows now and whose time limit is this long.
func waits(now time.Time, limit time.Duration) metadata.Ticket {
	return metadata.Ticket{Since: metadata.Time{Time: now}, TimeoutAt: metadata.Time{Time: now.Add(limit)}}
}

func TestWaiterWithAClockBehindKeepsItsTicket(t *testing.T) {
	for _, c := range []struct {
		name           string
		behind         time.Duration
		queued, beyond time.Duration // when the ticket is first seen; when it may be removed
	}{
		{"that is behind by more than it waits", 6 * time.Minute, 2 * time.Minute, 7 * time.Minute},
		{"that is ahead", -6 * time.Minute, 2 * time.Minute, 13*time.Minute + skew},
		{"that is right", 0, 2 * time.Minute, 7*time.Minute + skew},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			start := time.Now()
			var queues map[string][]metadata.Waiter
			var removed []time.Duration
			n := s.join(t, func(_ *node, c *sweeper.Config) {
				c.Queues = func() map[string][]metadata.Waiter { return queues }
				c.RemoveTicket = func(context.Context, metadata.Waiter) error {
					removed = append(removed, time.Since(start))
					queues = nil
					return nil
				}
			})
			s.wait(c.queued)
			began := n.clock()
			queues = map[string][]metadata.Waiter{"a": {{Name: "a", ID: "t", Revision: 1, Seen: began,
				Ticket: waits(time.Now().Add(-c.behind), 5*time.Minute)}}}
			s.wait(time.Hour)
			if len(removed) != 1 || removed[0] < c.beyond || removed[0] > c.beyond+6*time.Second {
				t.Errorf("removed at %v, want at %v", removed, c.beyond)
			}
		}))
	}
}

// overdue returns queues with this many tickets past their timeout.
func overdue(n int) func() map[string][]metadata.Waiter {
	queues := map[string][]metadata.Waiter{}
	for i := range n {
		lock := fmt.Sprint("queue-", i)
		queues[lock] = []metadata.Waiter{{Name: lock, ID: "forgotten", Ticket: waits(time.Now(), 0)}}
	}
	return func() map[string][]metadata.Waiter { return queues }
}

func TestTicketsDoNotDelayLocks(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(context.Context) error
		most   int // tries within ten minutes
	}{
		{"that cannot be removed: one failure ends the round", func(context.Context) error { return errDown },
			10*60/5 + 1},
		{"when etcd hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 10*60/5 + 1},
		{"when etcd is slow", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil },
			10 * 60 / 5 * 14},
		{"that changed meanwhile", func(context.Context) error { return metadata.ErrChanged }, 10 * 60 / 5 * 32},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			tries := 0
			n := s.join(t, func(_ *node, cfg *sweeper.Config) {
				cfg.Queues = overdue(1000)
				cfg.RemoveTicket = func(ctx context.Context, _ metadata.Waiter) error {
					tries++
					return c.answer(ctx)
				}
			})
			deadline := map[string]time.Time{}
			for i := range 20 {
				name := fmt.Sprint("lock-", i)
				s.take(name, time.Second, time.Minute+time.Duration(i)*10*time.Second)
				deadline[name] = time.Now().Add(time.Minute + time.Duration(i)*10*time.Second)
			}
			s.wait(10 * time.Minute)
			for name, at := range deadline {
				s.mustGo(t, name, at, skew, skew+1500*time.Millisecond)
			}
			if tries > c.most || tries < 10*60/5-10 {
				t.Errorf("%d tries, want at most %d", tries, c.most)
			}
			if lines := len(n.log("a waiter's ticket is past its timeout")); lines > tries {
				t.Errorf("%d lines for %d tries", lines, tries)
			}
		}))
	}
}
