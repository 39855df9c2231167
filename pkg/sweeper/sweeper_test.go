package sweeper_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

const (
	skew       = 5 * time.Second
	minWarning = 30 * time.Second
)

func TestDeadHoldersLockIsRemovedExactlyWhenDue(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.wait(40*time.Second + 123*time.Millisecond)
		s.take("a", time.Minute, 2*time.Minute)
		deadline := time.Now().Add(2 * time.Minute)
		s.wait(3 * time.Minute)
		s.mustBeRemovedOnceAt(t, "a", deadline.Add(skew))
		if got := s.endings["a"]; got.By != n.id || got.Cause != metadata.EndingAutoUnlocked || got.Token == 0 ||
			!strings.Contains(got.Reason, "passed and its holder did not extend it") {
			t.Errorf("the ending is %+v", got)
		}

		s.take("b", time.Minute, 2*time.Minute)
		deadline = time.Now().Add(2*time.Minute + skew)
		s.wait(2*time.Minute + skew - 100*time.Millisecond)
		n.jump(-300 * time.Millisecond) // the clock is slewed
		s.wait(time.Minute)
		s.mustBeRemovedOnceAt(t, "b", deadline.Add(300*time.Millisecond))
	})
}

func TestExtensionBetweenDecisionAndDeletionWins(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.wait(minWarning)
		s.take("a", time.Minute, 2*time.Minute)
		token := s.revision
		for _, name := range []string{"b", "c"} {
			s.take(name, time.Minute, 2*time.Minute)
		}
		s.onRemove = func() {
			if held, err := s.alive("a", token, time.Now().Round(0), time.Hour); !held || err != nil {
				t.Errorf("alive: %v, %v", held, err)
			}
			s.onRemove = nil
		}
		s.wait(10 * time.Minute)
		s.mustHave(t, "a")
		s.mustGoOnce(t, "b", "c") // which shared the batch
		n.mustLog(t, 1, "lock not removed", "result", "conflict", "lock", "a")
		s.wait(time.Hour)
		s.mustGoOnce(t, "a")
	})
}

func TestTwoSweepersRemoveEachLockOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.delay = 3 * time.Millisecond
		first := s.join(t, withPeers)
		second := s.join(t, withPeers)
		s.wait(minWarning)
		names := []string{"a", "b", "c", "d", "e"}
		for _, name := range names {
			s.take(name, time.Minute, 2*time.Minute)
		}
		s.wait(time.Hour)
		s.mustGoOnce(t, names...)
		if lines := len(first.log("lock removed")) + len(second.log("lock removed")); lines != len(names) {
			t.Errorf("%d removals logged, want one a lock", lines)
		}
	})
}

func TestOnlyTheAutoUnlockModeRemoves(t *testing.T) {
	for _, mode := range []sweeper.Mode{sweeper.AlertOnly, sweeper.DryRun} {
		t.Run(string(mode), simulated(func(t *testing.T, s *store) {
			n := s.join(t, func(_ *node, c *sweeper.Config) { c.Mode = mode })
			s.take("a", time.Minute, 2*time.Minute)
			s.wait(time.Hour)
			if s.mustHave(t, "a"); len(s.commits) > 0 {
				t.Errorf("asked etcd to remove %v", s.commits)
			}
			if s.presence[n.id].Mode != string(mode) {
				t.Errorf("announced %+v", s.presence[n.id])
			}
			if p, ok := staleness.FromPresence(s.presence[n.id].RemovalPolicy); !ok || p != staleness.DefaultPolicy() {
				t.Errorf("announced %+v", s.presence[n.id].RemovalPolicy)
			}
		}))
	}
}

func TestDryRunReportsEachDeadlineOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, func(_ *node, c *sweeper.Config) { c.Mode = sweeper.DryRun })
		s.take("a", time.Minute, 2*time.Minute)
		token := s.revision
		s.wait(time.Hour)
		n.mustLog(t, 1, "lock not removed", "result", "skipped", "reason", "dry run: it would be removed: its "+
			"auto_unlock_at 2000-01-01T00:02:00Z passed and its holder did not extend it; the lock alerted for at "+
			"least 30s")
		if held, err := s.alive("a", token, time.Now().Round(0), time.Minute); !held || err != nil {
			t.Fatalf("alive: %v, %v", held, err)
		}
		s.wait(time.Hour)
		n.mustLog(t, 2, "lock not removed")
	})
}

func TestExcludedLocksAreNotRemoved(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, excluding("billing/*", "job-?", "a.b"))
		spared := []string{"billing/invoice/42", "billing/", "job-1", "a.b", "billing/\nnewline"}
		removed := []string{"billing", "xbilling/1", "job-12", "job-", "aXb", "a.bc"}
		for _, name := range append(spared, removed...) {
			s.take(name, time.Minute, 2*time.Minute)
		}
		s.wait(time.Hour)
		for _, name := range spared {
			s.mustHave(t, name)
		}
		s.mustGoOnce(t, removed...)
		n.mustLog(t, len(spared), "lock not removed")
	})
}

// withoutDeadlines removes the deadlines from a record.
func withoutDeadlines(r *metadata.Record) {
	r.AlertAt = time.Time{}
	r.AutoUnlockAt = time.Time{}
	r.DeadlineRevision = 0
}

func TestLockWithoutDeadlinesIsRemovedOnlyByPolicy(t *testing.T) {
	for _, after := range []time.Duration{0, 2 * time.Hour} {
		t.Run("default auto-unlock after "+after.String(), simulated(func(t *testing.T, s *store) {
			s.join(t, withoutMembers, func(_ *node, c *sweeper.Config) { c.Policy.DefaultAutoUnlockAfter = after })
			s.take("a", 0, 0, withoutDeadlines)
			taken := time.Now()
			s.wait(5 * time.Hour)
			if after == 0 {
				s.mustHave(t, "a")
				return
			}
			s.mustBeRemovedOnceAt(t, "a", taken.Add(after+skew))
			if why := s.endings["a"].Reason; !strings.Contains(why, "no readable auto_unlock_at") {
				t.Errorf("why: %s", why)
			}
		}))
	}
}

func TestMassExpiryDoesNotBlindTheSweeper(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *store) {
		s.delay = time.Second
		s.takeMany(64*20, 64*30)
		n := s.join(t)
		s.take("late", 2*time.Minute+skew+2*time.Second, time.Hour)
		s.wait(2*time.Minute + skew + 10*time.Second)
		if left := 64*20 - len(s.removed); left < 64*6 || sample(t, n, "unlocker_alerting_locks_total") != 64*20+1 {
			t.Errorf("%d locks are left, and the alert of another was not noticed", left)
		}
		s.wait(time.Minute)
		if len(s.removed) != 64*20 {
			t.Errorf("%d removed", len(s.removed))
		}
	})
}

func TestBadConfigurationIsRefused(t *testing.T) {
	fine := (&node{id: "x", store: &store{}}).config
	if _, err := sweeper.New(fine()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*sweeper.Config)
		want   string
	}{
		"an unknown mode":          {func(c *sweeper.Config) { c.Mode = "destroy" }, `Mode is "destroy": want`},
		"a bad policy":             {func(c *sweeper.Config) { c.Policy.MinWarning = 0 }, "minimum warning"},
		"an empty exclude pattern": {func(c *sweeper.Config) { c.Exclude = []string{""} }, "glob is empty"},
		"one that is not UTF-8":    {func(c *sweeper.Config) { c.Exclude = []string{"\xff"} }, "not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fine()
			c.change(&cfg)
			if _, err := sweeper.New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
