package sweeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// commits records what is sent, when, and what else is in flight.
type commits struct {
	mu       sync.Mutex
	sizes    []int
	sent     map[string][]time.Time // by lock
	inFlight int
	most     int
}

func (c *commits) begin(removals []lockrecord.Removal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, len(removals))
	for _, r := range removals {
		c.sent[r.Record.Name] = append(c.sent[r.Record.Name], time.Now())
	}
	c.inFlight++
	c.most = max(c.most, c.inFlight)
}

func (c *commits) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
}

// observed records the node's commits, each of which takes this long.
func observed(takes time.Duration) (*commits, func(*node, *sweeper.Config)) {
	o := &commits{sent: map[string][]time.Time{}}
	return o, func(n *node, c *sweeper.Config) {
		c.Remove = func(ctx context.Context, removals []lockrecord.Removal) []error {
			o.begin(removals)
			time.Sleep(takes)
			defer o.end()
			return n.store.remove(ctx, removals)
		}
	}
}

// Each lock is queued twice: the last one of a batch must not be in the next batch, too, which is sent meanwhile.
func TestRemovalInFlightIsNotSentAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		o, slow := observed(10 * time.Millisecond)
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
