package sweeper_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// A scan of many locks sends batches in between, and learns of their outcomes: what failed is tried again after a
// second, whenever it failed, and not only when the next scan finds it.
func TestWhatFailsDuringAScanIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	longest := time.Duration(0)
	for _, offset := range []time.Duration{0, 2500 * time.Millisecond, 4500 * time.Millisecond} { // scans are 5 s apart
		simulate(t, func(t *testing.T, s *store) {
			for i := range 7000 { // locks that alert, before and after those that are due
				s.take(fmt.Sprintf("%c-%05d", "az"[min(1, i/2000)], i), 0, time.Hour)
			}
			for i := range 400 {
				s.take(fmt.Sprintf("due-%03d", i), 0, time.Minute+offset)
				s.broken[fmt.Sprintf("due-%03d", i)] = errors.New("try again")
			}
			tries := map[string][]time.Time{}
			s.join(t, func(n *node, c *sweeper.Config) {
				c.Remove = func(ctx context.Context, removals []metadata.Removal) []error {
					time.Sleep(300 * time.Millisecond)
					errs := n.store.remove(ctx, removals)
					n.store.mu.Lock()
					defer n.store.mu.Unlock()
					for _, r := range removals {
						tries[r.Record.Name] = append(tries[r.Record.Name], time.Now())
						delete(n.store.broken, r.Record.Name)
					}
					return errs
				}
			})
			s.wait(90 * time.Second)
			for name, at := range tries {
				if len(at) != 2 {
					t.Fatalf("%s was tried %d times", name, len(at))
				}
				longest = max(longest, at[1].Sub(at[0]))
			}
			if len(s.removed) != 400 {
				t.Fatalf("%d locks were removed", len(s.removed))
			}
		})
	}
	if longest > 4*time.Second {
		t.Errorf("the longest time between two tries is %v", longest)
	}
}
