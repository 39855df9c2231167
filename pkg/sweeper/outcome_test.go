package sweeper_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

func TestFailingRemovalBacksOff(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.join(t)
		s.take("bad", time.Minute, 2*time.Minute)
		s.broken["bad"] = context.DeadlineExceeded
		s.wait(2*time.Minute + skew + 31*time.Second)
		if s.tries["bad"] != 6 {
			t.Errorf("%d tries in half a minute, want 6", s.tries["bad"])
		}
		s.take("good", time.Minute, 2*time.Minute)
		s.wait(time.Hour)
		if tries := s.tries["bad"]; tries < 6+10 || tries > 6+13 {
			t.Errorf("%d tries in an hour, want one in five minutes", tries)
		}
		s.mustGoOnce(t, "good")
		delete(s.broken, "bad")
		s.wait(6 * time.Minute)
		s.mustGoOnce(t, "bad")
	})
}

func TestExtensionClearsRemovalFailures(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.take("bad", time.Minute, 2*time.Minute)
		token := s.revision
		s.broken["bad"] = context.DeadlineExceeded
		s.wait(5 * time.Minute)
		if held, err := s.alive("bad", token, time.Now().Round(0), time.Minute); !held || err != nil {
			t.Fatalf("alive: %v, %v", held, err)
		}
		s.wait(time.Minute + skew)
		n.mustLog(t, 7, "lock not removed", "failures", 1.)
	})
}

func TestRemovalOutcomes(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []error
		tries  int    // in nine seconds, while the view shows the lock as before
		result string // of those that did not remove it
	}{
		{"a conflict is not retried until the view may have caught up", []error{metadata.ErrChanged}, 10, "conflict"},
		{"a success is not repeated", []error{nil}, 1, ""},
		{"a wrong number of answers is a failure", nil, 4, "error"},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			tries := 0
			n := s.join(t, func(_ *node, cfg *sweeper.Config) {
				cfg.Remove = func(context.Context, []lockrecord.Removal) []error { tries++; return c.answer }
			})
			s.take("a", time.Second, 2*time.Minute)
			s.wait(2*time.Minute + skew + 9*time.Second)
			failed := n.log("lock not removed")
			if tries != c.tries || c.result == "" != (len(failed) == 0) {
				t.Fatalf("%d tries; logged %v", tries, failed)
			}
			for _, line := range failed {
				if line["result"] != c.result {
					t.Errorf("logged %v", line)
				}
			}
		}))
	}
}

func TestNewHoldWithoutDeadlinesIsNotMistakenForTheOld(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, func(_ *node, c *sweeper.Config) {
			c.Mode = sweeper.DryRun
			c.Policy.DefaultAutoUnlockAfter = time.Hour
		})
		for range 2 {
			s.take("a", 0, 0, withoutDeadlines)
			s.wait(2 * time.Hour)
			s.release("a")
		}
		n.mustLog(t, 2, "lock not removed")
	})
}

func TestShutdownFinishesRemovalsInFlight(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.delay = time.Second
		n := s.join(t)
		for i := range 200 {
			s.take(string(rune('a'+i%26))+strings.Repeat("x", i/26), time.Minute, 2*time.Minute)
		}
		for i := range 300 { // so that the brake is not on
			s.take(strings.Repeat("y", i+1), time.Hour, time.Hour)
		}
		s.wait(2*time.Minute + skew + 500*time.Millisecond)
		n.stop()
		select {
		case <-n.done:
			t.Fatal("Run returned while a removal was in flight")
		default:
		}
		s.wait(time.Hour)
		<-n.done
		if len(s.commits) != 2 || len(s.commits[0]) != 32 || len(s.removed) != 64 {
			t.Errorf("%d commits, %d removed", len(s.commits), len(s.removed))
		}
		n.mustLog(t, 64, "lock removed")
	})
}
