package sweeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// The holders of these tests have a time to live of 90 s. After any fault, live holders must still have their locks,
// and the dead holder's lock must be gone by the published bound.

func TestOutageLongerThanEveryTimeToLiveCostsNoLock(t *testing.T) {
	for name, fault := range map[string]func(*store){
		"etcd is down":                  (*store).stop,
		"etcd has no space: reads work": func(s *store) { s.set(func() { s.readOnly = true }) },
		"etcd is down, then has no space": func(s *store) {
			s.stop()
			time.AfterFunc(5*time.Minute, func() { s.set(func() { s.down, s.readOnly = false, true }) })
		},
		"etcd comes back for a moment each time": flapping,
	} {
		t.Run(name, simulated(func(t *testing.T, s *store) {
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
			s.mustGo(t, "dead", recovered, minWarning, minWarning+2*time.Second)
		}))
	}
}

// flapping makes etcd accept writes only for shorter times than the holders need.
func flapping(s *store) {
	s.stop()
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		time.AfterFunc(at, s.recover)
		time.AfterFunc(at+8*time.Second, s.stop)
	}
}

func TestRestartDuringAnOutageCostsNoLock(t *testing.T) {
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
		s.mustGo(t, "dead", recovered, minWarning, minWarning+2*time.Second)
	})
}

const gap = "gap: the minimum warning of all locks starts over"

func TestGapRestartsTheWarning(t *testing.T) {
	hangs := func(hang func(context.Context) error) func(*store, *node) {
		return func(s *store, _ *node) { s.hang = hang }
	}
	jump := func(d time.Duration) func(*store, *node) { return func(_ *store, n *node) { n.jump(d) } }
	stale := func(f protocol.Freshness) func(*store, *node) { return func(_ *store, n *node) { n.stale = &f } }
	const soon = minWarning + 2*time.Second
	for _, c := range []struct {
		name  string
		fault func(*store, *node)
		lasts time.Duration
		rule  staleness.Rule // that holds the lock back all the time
		cause string         // that is logged
		most  time.Duration  // from its end until the removal
	}{
		{"a failed canary", func(s *store, _ *node) { s.readOnly = true }, time.Second, "", "etcd takes no writes",
			soon},
		{"a new raft term", func(s *store, _ *node) { s.term++ }, 0, "", "etcd's raft term changed", soon},
		{"a small jump forward", jump(1500 * time.Millisecond), 0, "", "the wall clock jumped", soon},
		{"a small jump back", jump(-1500 * time.Millisecond), 0, "", "the wall clock jumped", soon},
		{"a process that is stopped, or a suspended virtual machine", hangs(func(context.Context) error {
			time.Sleep(6 * time.Second) // without regard for a deadline
			return nil
		}), 4 * time.Second, "", "the canary was late", soon + 3*time.Second},
		{"a canary that hangs", hangs(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
			10 * time.Minute, staleness.RuleEtcd, "etcd takes no writes", soon},
		{"a canary that hangs whatever its deadline",
			hangs(func(ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() }),
			10 * time.Minute, staleness.RuleEtcd, "the canary was late", soon},
		{"nothing was heard for a while", stale(protocol.Freshness{Synced: true}), time.Minute,
			staleness.RuleStale, "etcd was silent for a while", soon},
		{"the view is not complete", stale(protocol.Freshness{}), time.Minute, staleness.RuleStale,
			"the view of the locks is incomplete", soon},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			n := s.join(t)
			s.take("a", time.Second, 2*time.Minute)
			s.wait(110*time.Second + 500*time.Millisecond)
			s.set(func() { c.fault(s, n) })
			s.wait(c.lasts)
			s.mustHave(t, "a")
			if got := n.Status(); c.rule != "" && got.HeldBack[c.rule] != 1 {
				t.Errorf("status %+v", got)
			}
			s.set(func() {
				s.readOnly, s.hang = false, nil
				n.stale = nil
			})
			over := time.Now()
			s.wait(c.most - 10*time.Second)
			during := sample(t, n, "unlocker_removal_held_back", "gap")
			s.wait(time.Hour)
			if after := sample(t, n, "unlocker_removal_held_back", "gap"); during != 1 || after != 0 {
				t.Errorf("%v locks were held back by the gap, %v in the end", during, after)
			}
			s.mustGo(t, "a", over, minWarning-time.Second, c.most)
			lines := n.log(gap)
			if len(lines) == 0 || lines[0]["cause"] != c.cause {
				t.Errorf("logged %v", lines)
			}
		}))
	}
}

func TestAnOrdinaryExpiryIsNotHeldBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.take("a", 115*time.Second, 2*time.Minute)
		over := time.Now()
		s.wait(130 * time.Second)
		s.mustHave(t, "a")
		for rule, locks := range n.Status().HeldBack {
			if locks > 0 {
				t.Errorf("while it is warned of, %s holds back %d locks", rule, locks)
			}
		}
		s.wait(time.Hour)
		s.mustGo(t, "a", over, 115*time.Second+minWarning, 115*time.Second+minWarning+10*time.Second)
	})
}

func TestLastGapIsAnnounced(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		announced := func(since time.Time, cause string) {
			t.Helper()
			s.wait(10 * time.Second)
			var p metadata.Presence
			s.set(func() { p = s.presence[n.id] })
			if after := p.LastGap.Sub(since); p.LastGapCause != cause || after < -time.Second || after > 3*time.Second {
				t.Errorf("announced %q %v after it began", p.LastGapCause, after)
			}
		}
		announced(time.Now(), "the process started")
		s.set(func() { s.term++ })
		announced(time.Now(), "etcd's raft term changed")
	})
}

// A read-only role is refused from the first write on, during the gap after the start.
func TestFailedWritesAreLoggedAtOnceAndOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.set(func() { s.readOnly = true })
		n := s.join(t)
		s.wait(2 * time.Second)
		n.mustLog(t, 1, gap, "cause", "etcd takes no writes", "detail", errNoSpace.Error())
		s.wait(25 * time.Minute)
		n.mustLog(t, 1, gap)
		n.mustLog(t, 0, "the gap is over")
		s.recover()
		s.wait(3 * time.Second)
		n.mustLog(t, 1, "the gap is over", "cause", "etcd takes writes again")
	})
}

func TestStartIsNotLoggedAsTrouble(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, func(n *node, _ *sweeper.Config) { n.stale = &protocol.Freshness{} })
		s.wait(8 * time.Second) // the first list takes a while
		s.set(func() { n.stale = nil })
		s.wait(time.Minute)
		n.mustLog(t, 0, gap)
		n.mustLog(t, 1, "the gap is over", "cause", "the process started")
	})
}

func TestShutdownIsNotAGap(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.wait(time.Minute)
		s.set(func() { s.hang = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } })
		s.wait(time.Second)
		n.leave()
		n.mustLog(t, 0, gap)
	})
}
