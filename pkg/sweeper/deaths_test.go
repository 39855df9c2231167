package sweeper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

func TestAbandonedLockIsRemovedAfterTheGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, 10 * time.Second, 3 * time.Minute} {
		t.Run(grace.String(), simulated(func(t *testing.T, s *store) {
			n := s.join(t, unlocksAbandoned(grace))
			s.take("a", time.Hour, 2*time.Hour)
			s.wait(7*time.Second + 123*time.Millisecond) // between two scans
			stated := time.Now()
			s.state("a")
			s.wait(4 * time.Minute)
			s.mustBeRemovedOnceAt(t, "a", stated.Add(grace))
			want := fmt.Sprintf("its container ended at %s with exit code 137 (OOMKilled), "+
				"according to the witness w-1",
				stated.Add(-40*time.Second).UTC().Format(time.RFC3339))
			if got := s.endings["a"]; got.Cause != metadata.EndingAbandoned || got.Reason != want || got.By != n.id {
				t.Errorf("the ending is %+v, want %s", got, want)
			}
			for reason, want := range map[string]float64{"abandoned": 1, "deadline": 0} {
				if got := sample(t, n, "unlocker_removed_locks_total", reason); got != want {
					t.Errorf("%v locks removed for %s, want %v", got, reason, want)
				}
			}
			if lines := n.log("lock removed"); len(lines) != 1 || lines[0]["death"] == nil {
				t.Errorf("the log says %v", lines)
			}
		}))
	}
}

// A lock that is queued twice, by a scan for its deadline and for its holder's death, is removed once.
func TestDeathNearTheDeadlineQueuesNoSecondRemoval(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, unlocksAbandoned(time.Minute))
		s.take("a", time.Second, 2*time.Minute+9*time.Second)
		s.wait(2*time.Minute + 12*time.Second) // the last scan has queued it for 2 s from now
		s.state("a")
		s.wait(time.Minute)
		if tries := s.tries["a"]; tries != 1 || len(s.removed["a"]) != 1 {
			t.Errorf("%d removals were sent, %d done", tries, len(s.removed["a"]))
		}
		n.mustLog(t, 1, "lock removed")
		n.mustLog(t, 0, "lock not removed")
	})
}

func TestReportedAbandonedLockStaysUntilItsDeadline(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		n.watches = true
		s.take("a", time.Minute, 2*time.Minute)
		deadline := time.Now().Add(2 * time.Minute)
		s.wait(40 * time.Second)
		s.state("a")
		s.wait(80*time.Second + skew - time.Millisecond)
		s.mustHave(t, "a")
		n.mustLog(t, 1, "the lock is abandoned")
		s.wait(time.Minute)
		s.mustBeRemovedOnceAt(t, "a", deadline.Add(skew))
		if got := s.endings["a"]; got.Cause != metadata.EndingAutoUnlocked {
			t.Errorf("the ending is %+v", got)
		}
	})
}

// The record decides, then the unlocker's default. Abandoned locks have no lock delay.
func TestAutoUnlockStartsTheLockDelay(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.join(t, unlocksAbandoned(0), func(_ *node, c *sweeper.Config) { c.Policy.LockDelay = 20 * time.Second })
		delay := func(d time.Duration) func(*metadata.Record) {
			return func(r *metadata.Record) { r.LockDelay = d }
		}
		s.take("default", time.Minute, 2*time.Minute)
		s.take("long", time.Minute, 2*time.Minute, delay(time.Minute))
		s.take("none", time.Minute, 2*time.Minute, delay(metadata.NoLockDelay))
		s.take("dead", time.Hour, 2*time.Hour, delay(time.Minute))
		s.state("dead")
		s.wait(10 * time.Minute)
		for name, want := range map[string]time.Duration{"default": 20 * time.Second, "long": time.Minute, "none": 0,
			"dead": 0} {
			if got := s.delays[name]; got != want || len(s.removals(name)) != 1 {
				t.Errorf("%s: removed %d times, with a delay of %v, want %v", name, len(s.removals(name)), got, want)
			}
		}
	})
}
