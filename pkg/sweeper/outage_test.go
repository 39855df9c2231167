package sweeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// The holders of these tests live, with a time to live of 90 s: after any fault they must still have their locks. One
// is dead, and its lock must be gone by the published bound.

func TestAnOutageLongerThanEveryTimeToLiveCostsNobodyALock(t *testing.T) {
	for name, fault := range map[string]func(*store){
		"etcd is down":                  (*store).stop,
		"etcd has no space: reads work": func(s *store) { s.set(func() { s.readOnly = true }) },
		"etcd is down, then has no space": func(s *store) {
			s.stop()
			time.AfterFunc(5*time.Minute, func() { s.set(func() { s.down, s.readOnly = false, true }) })
		},
		"etcd comes back for a moment each time": flapping,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *store) {
				s.join(t)
				s.join(t, withPeers)
				h := s.hold(t, "living", 90*time.Second, 0)
				s.take("dead", time.Second, 100*time.Second)
				s.wait(95*time.Second + 300*time.Millisecond)
				fault(s)
				s.wait(10 * time.Minute)
				s.mustHave(t, "dead")
				s.recover()
				recovered := time.Now()
				s.wait(minWarning)
				s.mustHave(t, "dead") // the next canary came a moment after the recovery
				s.wait(time.Hour)
				h.mustHold(t)
				if at := s.removals("dead"); len(at) != 1 || at[0].Sub(recovered) > minWarning+2*time.Second {
					t.Errorf("recovered at %v, the dead holder's lock was removed at %v", recovered, at)
				}
			})
		})
	}
}

// flapping lets etcd accept writes for shorter times than the holders need.
func flapping(s *store) {
	s.stop()
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		time.AfterFunc(at, s.recover)
		time.AfterFunc(at+8*time.Second, s.stop)
	}
}

func TestARestartDuringAnOutageForgetsNothingThatMatters(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		h := s.hold(t, "living", 90*time.Second, 0)
		s.take("dead", time.Second, 100*time.Second)
		s.wait(95 * time.Second)
		s.stop()
		s.wait(5 * time.Minute)
		n.leave()
		s.join(t)
		s.wait(5 * time.Minute)
		s.recover()
		recovered := time.Now()
		s.wait(time.Hour)
		h.mustHold(t)
		if at := s.removals("dead"); len(at) != 1 || at[0].Sub(recovered) < minWarning ||
			at[0].Sub(recovered) > minWarning+2*time.Second {
			t.Errorf("recovered at %v, removed at %v", recovered, at)
		}
	})
}

func TestGapsStartTheWarningAnew(t *testing.T) {
	failOnce := func(s *store, _ *node) {
		s.set(func() { s.readOnly = true })
		time.AfterFunc(time.Second, s.recover)
	}
	for _, c := range []struct {
		name  string
		cause string
		fault func(s *store, n *node)
	}{
		{"a failed canary", "etcd takes no writes", failOnce},
		{"a new raft term", "etcd's raft term changed", func(s *store, _ *node) { s.set(func() { s.term++ }) }},
		{"a small jump forward", "the wall clock jumped", func(_ *store, n *node) { n.jump(1500 * time.Millisecond) }},
		{"a small jump back", "the wall clock jumped", func(_ *store, n *node) { n.jump(-1500 * time.Millisecond) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *store) {
				n := s.join(t)
				s.take("a", time.Second, 2*time.Minute)
				s.wait(2*time.Minute + 500*time.Millisecond)
				c.fault(s, n)
				fault := time.Now()
				s.wait(10 * time.Second)
				during := sample(t, n, "unlocker_removal_held_back", "gap")
				s.wait(time.Hour)
				if after := sample(t, n, "unlocker_removal_held_back", "gap"); during != 1 || after != 0 {
					t.Errorf("%v locks were held back by the gap, %v in the end", during, after)
				}
				at := s.removals("a")
				if len(at) != 1 || at[0].Sub(fault) < minWarning || at[0].Sub(fault) > minWarning+3*time.Second {
					t.Errorf("fault at %v, removed at %v", fault, at)
				}
				logged := false
				for _, line := range n.log("gap: the minimum warning of all locks starts over") {
					logged = logged || line["cause"] == c.cause
				}
				if !logged {
					t.Errorf("no gap with cause %q was logged", c.cause)
				}
			})
		})
	}
}

// A role that may only read is refused from the first write on, in the gap that every start is.
func TestAnUnlockerThatCannotWriteSaysSoAtOnceThenSeldomAndWhenItCanAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.set(func() { s.readOnly = true })
		n := s.join(t)
		s.wait(2 * time.Second)
		lines := func() []map[string]any { return n.log("gap: the minimum warning of all locks starts over") }
		if said := lines(); len(said) != 1 || said[0]["cause"] != "etcd takes no writes" ||
			said[0]["detail"] != errNoSpace.Error() {
			t.Fatalf("after two seconds it has logged %v", said)
		}
		s.wait(25 * time.Minute)
		if said := lines(); len(said) != 3 {
			t.Errorf("in 25 minutes it has logged %d lines", len(said))
		}
		if over := n.log("the gap is over"); len(over) > 0 {
			t.Errorf("it has logged %v", over)
		}
		s.recover()
		s.wait(3 * time.Second)
		if over := n.log("the gap is over"); len(over) != 1 || over[0]["cause"] != "etcd takes writes again" {
			t.Errorf("when it could write again it logged %v", over)
		}
	})
}

func TestAStartIsNotLoggedAsTrouble(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, func(n *node, _ *sweeper.Config) { n.stale = &sweeper.Freshness{} })
		s.wait(8 * time.Second) // the first list takes a while
		s.set(func() { n.stale = nil })
		s.wait(time.Minute)
		if lines := n.log("gap: the minimum warning of all locks starts over"); len(lines) > 0 {
			t.Errorf("logged %v", lines)
		}
		if over := n.log("the gap is over"); len(over) != 1 || over[0]["cause"] != "the process started" {
			t.Errorf("logged %v", over)
		}
	})
}

// After a SIGSTOP or a suspended virtual machine, the canary is late.
func TestALateCanaryIsAGap(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.take("a", time.Second, 2*time.Minute)
		s.wait(110 * time.Second)
		s.set(func() { // without regard for its deadline, as a stopped process
			s.hang = func(context.Context) error { time.Sleep(6 * time.Second); return nil }
		})
		s.wait(4 * time.Second)
		s.set(func() { s.hang = nil })
		s.wait(time.Minute)
		if at := s.removals("a"); len(at) != 1 || at[0].Sub(n.started) < 110*time.Second+6*time.Second+minWarning {
			t.Errorf("removed after %v", at[0].Sub(n.started))
		}
		lines := n.log("gap: the minimum warning of all locks starts over")
		for _, line := range lines {
			if line["cause"] != "the canary was late" {
				t.Errorf("etcd is well, and the cause is %q", line["cause"])
			}
		}
		if len(lines) == 0 {
			t.Error("no gap for a late canary was logged")
		}
	})
}

// A put that never returns is as bad as one that fails.
func TestACanaryThatHangsHoldsEverythingBack(t *testing.T) {
	for name, hang := range map[string]func(context.Context) error{
		"and heeds its deadline": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"and does not":           func(ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *store) {
				n := s.join(t)
				s.take("a", time.Second, 2*time.Minute)
				s.wait(119 * time.Second)
				s.set(func() { s.hang = hang })
				s.wait(10 * time.Minute)
				s.mustHave(t, "a")
				if got := n.Status(); got.Writable || got.HeldBack[staleness.Etcd] != 1 {
					t.Errorf("status %+v", got)
				}
				s.set(func() { s.hang = nil })
				again := time.Now()
				s.wait(10 * time.Minute)
				if at := s.removals("a"); len(at) != 1 || at[0].Sub(again) < minWarning {
					t.Errorf("hung until %v, removed at %v", again, at)
				}
			})
		})
	}
}

func TestTheEndOfTheProcessIsNotAGap(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.wait(time.Minute)
		s.set(func() { s.hang = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } })
		s.wait(time.Second)
		n.leave()
		if lines := n.log("gap: the minimum warning of all locks starts over"); len(lines) > 0 {
			t.Errorf("logged %v", lines)
		}
	})
}

func TestNothingIsRemovedFromAViewThatIsNotFresh(t *testing.T) {
	for name, stale := range map[string]sweeper.Freshness{
		"nothing was heard for a while": {Synced: true, Age: 11 * time.Second},
		"the view is not complete":      {Synced: false, Age: 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *store) {
				n := s.join(t)
				s.take("a", time.Second, 2*time.Minute)
				s.wait(2 * time.Minute)
				s.set(func() { n.stale = &stale })
				s.wait(time.Minute)
				s.mustHave(t, "a")
				if got := n.Status(); got.HeldBack[staleness.Stale] != 1 || got.Fresh {
					t.Errorf("status %+v", got)
				}
				s.set(func() { n.stale = nil })
				again := time.Now()
				s.wait(time.Hour)
				if at := s.removals("a"); len(at) != 1 || at[0].Sub(again) < minWarning-time.Second ||
					at[0].Sub(again) > minWarning+time.Second {
					t.Errorf("fresh again at %v, removed at %v", again, at)
				}
			})
		})
	}
}
