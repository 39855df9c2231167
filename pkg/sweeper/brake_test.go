package sweeper_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

const brakeMessage = "brake: while most locks are due within a minute, this unlocker removes them slowly"

// takeMany writes locks that expire in two minutes, in their order, and some that do not.
func (s *store) takeMany(expiring, others int) {
	for i := range expiring {
		s.take(fmt.Sprintf("due-%05d", i), time.Second, 2*time.Minute+time.Duration(i)*time.Millisecond)
	}
	for i := range others {
		s.take(fmt.Sprintf("other-%05d", i), time.Hour, 2*time.Hour)
	}
}

func TestMassExpiryIsRemovedInBatchesOldestFirst(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.takeMany(1000, 1500)
		s.wait(10 * time.Minute)
		n := s.join(t)
		s.wait(minWarning)
		n.must(t, func(sweeper.Status) bool { return len(s.removed) == 1000 })
		n.mustLog(t, 0, brakeMessage)
		var last, beside string // the newest lock of the commit before, and of the one before that
		for _, commit := range s.commits {
			if len(commit) > 32 {
				t.Errorf("%d removals in one commit", len(commit))
			}
			if !slices.IsSorted(commit) || commit[0] < beside { // the commit before was in flight, too
				t.Errorf("%v were removed after %s and %s", commit, beside, last)
			}
			beside, last = last, commit[len(commit)-1]
		}
		if len(s.commits) > 33 {
			t.Errorf("%d commits", len(s.commits))
		}
	})
}

func TestBrakeSlowsButNeverStops(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.takeMany(100, 40)
		n := s.join(t)
		s.wait(2*time.Minute + skew + 10*time.Second)
		if got := len(s.removed); got < 9 || got > 12 {
			t.Errorf("%d removed in the first ten seconds, want one each second", got)
		}
		n.must(t, func(s sweeper.Status) bool { return s.HeldBack[staleness.RuleBrake] >= 80 })
		if got := s.presence[n.id].HeldBack; !slices.Equal(got, []string{"brake"}) {
			t.Errorf("announced %v", got)
		}
		for i, commit := range s.commits {
			if len(commit) != 1 || commit[0] != fmt.Sprintf("due-%05d", i) {
				t.Errorf("commit %d removed %v, want the oldest lock", i, commit)
			}
		}
		s.wait(2 * time.Minute)
		n.must(t, func(sweeper.Status) bool { return len(s.removed) == 100 })
		n.mustLog(t, 2, brakeMessage, "on", false)
	})
}

// After a start, any lock may become removable first; here it is the one with the latest deadline. Then all of them may
// be removed.
func TestBrakePrefersTheOldestRemovableLocks(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.takeMany(30, 0)
		s.wait(10 * time.Minute)
		later := func(r *metadata.Record) *metadata.Record {
			if r == nil {
				return nil
			}
			var i int
			if _, err := fmt.Sscanf(r.Name, "due-%d", &i); err != nil {
				t.Error(err)
			}
			seen := *r
			seen.Seen.Changed += time.Second + time.Duration(30-i)*time.Millisecond
			return &seen
		}
		s.join(t, func(n *node, c *sweeper.Config) {
			c.Lock = func(name string) *metadata.Record { return later(n.lock(name)) }
			c.Locks = func() iter.Seq[*metadata.Record] {
				return func(yield func(*metadata.Record) bool) {
					for r := range n.locks() {
						if !yield(later(r)) {
							return
						}
					}
				}
			}
		})
		s.wait(minWarning + time.Minute)
		order := slices.Concat(s.commits...)
		if len(order) != 30 || order[0] != "due-00029" || !slices.IsSorted(order[1:]) {
			t.Errorf("removed in the order %v, want the only one that is due, then the oldest first", order)
		}
	})
}

func TestBrakeCountsLocksAboutToBeDue(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.takeMany(100, 0)
		s.wait(2*time.Minute + skew - time.Minute - 10*time.Second)
		n.mustLog(t, 0, brakeMessage)
		s.wait(20 * time.Second) // half a minute ahead
		n.mustLog(t, 1, brakeMessage, "on", true)
	})
}

func TestBrakeIsOffForFewLocks(t *testing.T) {
	for _, c := range []struct {
		name               string
		expiring, others   int
		removedAfterSecond int
	}{
		{"twenty of twenty are no disaster", 20, 0, 20},
		{"half is not more than half", 50, 50, 50},
		{"twenty-one of twenty-one are", 21, 0, 2},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			s.join(t)
			s.wait(1200 * time.Millisecond) // so that no scan falls on the moment of the removals
			s.takeMany(c.expiring, c.others)
			s.wait(2*time.Minute + skew + time.Second)
			if len(s.removed) != c.removedAfterSecond {
				t.Errorf("%d removed", len(s.removed))
			}
			s.wait(time.Minute)
			if len(s.removed) != c.expiring {
				t.Errorf("%d removed in the end", len(s.removed))
			}
		}))
	}
}

func TestExcludedLocksDoNotEngageTheBrake(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.takeMany(100, 0)
		for name := range s.locks {
			s.take("spared/"+name, time.Second, 2*time.Minute)
		}
		n := s.join(t, excluding("spared/*", "due-*"))
		s.take("a", time.Second, 2*time.Minute, func(*metadata.Record) {})
		s.wait(2*time.Minute + skew)
		s.mustGoOnce(t, "a")
		n.mustLog(t, 0, brakeMessage)
	})
}

// The machine with most of the holders goes down: its many deaths engage the brake.
func TestBrakeAppliesToDeadHolders(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, unlocksAbandoned(10*time.Second))
		s.takeMany(0, 100)
		s.wait(time.Minute)
		for i := range 60 {
			s.state(fmt.Sprintf("other-%05d", i))
		}
		s.wait(20 * time.Second)
		if got := len(s.removed); got < 5 || got > 15 {
			t.Errorf("%d locks were removed within ten seconds", got)
		}
		n.must(t, func(s sweeper.Status) bool { return s.HeldBack[staleness.RuleBrake] > 0 })
	})
}

func TestBrakeAllowsOneRemovalInFlight(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		var inFlight, most, largest atomic.Int64
		s.join(t, func(_ *node, c *sweeper.Config) {
			c.Remove = func(ctx context.Context, removals []lockrecord.Removal) []error {
				most.Store(max(most.Load(), inFlight.Add(1)))
				largest.Store(max(largest.Load(), int64(len(removals))))
				defer inFlight.Add(-1)
				time.Sleep(1500 * time.Millisecond)
				return s.remove(ctx, removals)
			}
		})
		s.wait(1200 * time.Millisecond)
		s.takeMany(100, 0)
		s.wait(2*time.Minute + skew + 20*time.Second)
		s.mu.Lock() // the next removals are on their way
		defer s.mu.Unlock()
		if most.Load() != 1 || largest.Load() != 1 || len(s.removed) > 9 {
			t.Errorf("%d batches in flight of up to %d, %d removed", most.Load(), largest.Load(), len(s.removed))
		}
	})
}
