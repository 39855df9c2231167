package sweeper_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// commits records what is sent, when, and what else is in flight.
type commits struct {
	mu       sync.Mutex
	takes    func(n int) time.Duration // what a commit of n removals takes
	sizes    []int
	sent     map[string][]time.Time // by lock
	inFlight int
	most     int
}

func (c *commits) begin(removals []lockrecord.Removal) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, len(removals))
	for _, r := range removals {
		c.sent[r.Record.Name] = append(c.sent[r.Record.Name], time.Now())
	}
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	return c.takes(len(removals))
}

func (c *commits) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
}

func (c *commits) flying() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight
}

// observed records the node's removals, each of which takes the time that takes returns.
func observed(takes func(n int) time.Duration) (*commits, func(*node, *sweeper.Config)) {
	o := &commits{takes: takes, sent: map[string][]time.Time{}}
	return o, func(n *node, c *sweeper.Config) {
		c.Remove = func(ctx context.Context, removals []lockrecord.Removal) []error {
			time.Sleep(o.begin(removals))
			defer o.end()
			return n.store.remove(ctx, removals)
		}
	}
}

func TestTwoBatchesAreInFlight(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		o, slow := observed(func(int) time.Duration { return 10 * time.Millisecond })
		s.takeMany(640, 1000)
		s.wait(10 * time.Minute)
		s.join(t, slow)
		s.wait(minWarning + 55*time.Millisecond) // one after the other, they would take 100
		if len(s.removed) != 640 || o.most != 2 {
			t.Errorf("%d removed, %d batches in flight at most", len(s.removed), o.most)
		}
	})
}

// Each lock is queued twice: the last one of a batch must not be in the next batch, too, which is sent meanwhile.
func TestRemovalInFlightIsNotSentAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		o, slow := observed(func(int) time.Duration { return 10 * time.Millisecond })
		n := s.join(t, slow, unlocksAbandoned(time.Second))
		s.takeMany(200, 300)
		s.wait(minWarning + 1200*time.Millisecond)
		for i := range 200 {
			s.state(fmt.Sprintf("due-%05d", i))
		}
		s.wait(time.Millisecond)
		for i := range 200 {
			n.HolderDied(fmt.Sprintf("due-%05d", i))
		}
		s.wait(time.Minute)
		if len(s.removed) != 200 {
			t.Errorf("%d removed", len(s.removed))
		}
		for name, times := range o.sent {
			if len(times) != 1 {
				t.Errorf("%s was sent %d times", name, len(times))
			}
		}
	})
}

func TestBatchesShrinkWhileTheyDelayOthers(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		crowded := true
		o, slow := observed(func(n int) time.Duration {
			if crowded {
				return time.Duration(n) * time.Millisecond
			}
			return time.Duration(n) * time.Millisecond / 8
		})
		s.takeMany(1000, 1200)
		s.wait(10 * time.Minute)
		s.join(t, slow)
		s.wait(minWarning + 300*time.Millisecond)
		o.mu.Lock()
		first := slices.Clone(o.sizes[:2])
		busy := slices.Clone(o.sizes[len(o.sizes)-6:])
		crowded = false
		o.mu.Unlock()
		s.wait(time.Minute)
		if slices.Max(first) != 64 || slices.Max(busy) != 32 {
			t.Errorf("sizes were %v at first and %v when they took too long", first, busy)
		}
		if len(s.removed) != 1000 || slices.Max(o.sizes[len(o.sizes)-6:]) != 64 {
			t.Errorf("%d removed; sizes %v", len(s.removed), o.sizes)
		}
	})
}

// If every write is slow, smaller batches do not help.
func TestBatchesDoNotShrinkIfEveryWriteIsSlow(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		o, slow := observed(func(int) time.Duration { return 210 * time.Millisecond })
		s.hang = func(context.Context) error { time.Sleep(200 * time.Millisecond); return nil }
		s.takeMany(640, 1000)
		s.wait(10 * time.Minute)
		s.join(t, slow)
		s.wait(time.Minute)
		if len(s.removed) != 640 || len(o.sizes) != 10 {
			t.Errorf("%d removed in commits of %v", len(s.removed), o.sizes)
		}
	})
}

// The latency of writes during removals does not count as usual, however long it lasts.
func TestBatchesDoNotGrowWithTheirOwnDelay(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		o, slow := observed(func(int) time.Duration { return 5 * time.Second })
		s.hang = func(context.Context) error {
			if o.flying() > 0 {
				time.Sleep(1900 * time.Millisecond)
			}
			return nil
		}
		s.takeMany(1280, 1400)
		s.wait(10 * time.Minute)
		s.join(t, slow)
		s.wait(5 * time.Minute)
		if len(s.removed) != 1280 || slices.Max(o.sizes[3:]) != 32 {
			t.Errorf("%d removed in commits of %v", len(s.removed), o.sizes)
		}
	})
}

func TestBrakeAllowsOneRemovalInFlight(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		o, slow := observed(func(int) time.Duration { return 1500 * time.Millisecond })
		s.join(t, slow)
		s.wait(1200 * time.Millisecond)
		s.takeMany(100, 0)
		s.wait(2*time.Minute + skew + 20*time.Second)
		s.mu.Lock() // the next removals are on their way
		defer s.mu.Unlock()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.most != 1 || slices.Max(o.sizes) != 1 || len(s.removed) > 9 {
			t.Errorf("%d batches in flight, sizes %v, %d removed", o.most, o.sizes, len(s.removed))
		}
	})
}
