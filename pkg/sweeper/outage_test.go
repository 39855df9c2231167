package sweeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// The holders of these tests live, with a time to live of 90 s: after any fault they must still have their locks. One is dead,
// and its lock must be gone by the published bound.

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
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.join(t)
				s.join(t, withPeers)
				h := s.hold(t, "living", 90*time.Second, 0)
				s.take("dead", time.Second, 100*time.Second)
				wait(95*time.Second + 300*time.Millisecond)
				fault(s)
				wait(10 * time.Minute)
				s.mustHave(t, "dead")
				s.recover()
				recovered := time.Now()
				wait(minWarning - time.Second)
				s.mustHave(t, "dead")
				wait(time.Hour)
				h.mustHold(t)
				if at := s.removals("dead"); len(at) != 1 || at[0].Sub(recovered) > minWarning+2*time.Second {
					t.Errorf("recovered at %v, the dead holder's lock was removed at %v", recovered, at)
				}
			})
		})
	}
}

// flapping lets etcd take writes for less than the holders need.
func flapping(s *store) {
	s.stop()
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		time.AfterFunc(at, s.recover)
		time.AfterFunc(at+8*time.Second, s.stop)
	}
}

func TestARestartDuringAnOutageForgetsNothingThatMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		n := s.join(t)
		h := s.hold(t, "living", 90*time.Second, 0)
		s.take("dead", time.Second, 100*time.Second)
		wait(95 * time.Second)
		s.stop()
		wait(5 * time.Minute)
		n.leave()
		s.join(t)
		wait(5 * time.Minute)
		s.recover()
		recovered := time.Now()
		wait(time.Hour)
		h.mustHold(t)
		if at := s.removals("dead"); len(at) != 1 || at[0].Sub(recovered) < minWarning || at[0].Sub(recovered) > minWarning+2*time.Second {
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
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				n := s.join(t)
				s.take("a", time.Second, 2*time.Minute)
				wait(2*time.Minute + 500*time.Millisecond)
				c.fault(s, n)
				fault := time.Now()
				wait(time.Hour)
				at := s.removals("a")
				if len(at) != 1 || at[0].Sub(fault) < minWarning || at[0].Sub(fault) > minWarning+3*time.Second {
					t.Errorf("fault at %v, removed at %v", fault, at)
				}
				logged := false
				for _, line := range n.log("gap: the warning time of all locks starts anew") {
					logged = logged || line["cause"] == c.cause
				}
				if !logged {
					t.Errorf("no gap with cause %q was logged", c.cause)
				}
			})
		})
	}
}

// A process that was stopped, and a virtual machine that was suspended, find that their canary is late.
func TestALateCanaryIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var slow time.Duration
		n := s.join(t, func(n *node, c *sweeper.Config) {
			c.Announce = func(_ context.Context, p metadata.Presence) (int64, uint64, error) {
				time.Sleep(slow) // without regard for its deadline, as a stopped process
				return s.announce(p)
			}
		})
		s.take("a", time.Second, 2*time.Minute)
		wait(110 * time.Second)
		slow = 6 * time.Second
		wait(4 * time.Second)
		slow = 0
		wait(time.Minute)
		if at := s.removals("a"); len(at) != 1 || at[0].Sub(n.started) < 110*time.Second+6*time.Second+minWarning {
			t.Errorf("removed after %v", at[0].Sub(n.started))
		}
		late := false
		for _, line := range n.log("gap: the warning time of all locks starts anew") {
			late = late || line["cause"] == "the canary was late" || line["cause"] == "etcd takes no writes"
		}
		if !late {
			t.Error("no gap for a late canary was logged")
		}
	})
}

func TestNothingIsRemovedFromAViewThatIsNotFresh(t *testing.T) {
	for name, stale := range map[string]sweeper.Freshness{
		"nothing was heard for a while": {Synced: true, Age: 11 * time.Second},
		"the view is not complete":      {Synced: false, Age: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				isStale := false
				n := s.join(t, func(n *node, c *sweeper.Config) {
					c.Fresh = func() sweeper.Freshness {
						if isStale {
							return stale
						}
						return n.fresh()
					}
				})
				s.take("a", time.Second, 2*time.Minute)
				wait(2 * time.Minute)
				isStale = true
				wait(time.Minute)
				s.mustHave(t, "a")
				if got := n.Status(); got.HeldBack[staleness.Stale] != 1 || got.Fresh {
					t.Errorf("status %+v", got)
				}
				isStale = false
				again := time.Now()
				wait(time.Hour)
				if at := s.removals("a"); len(at) != 1 || at[0].Sub(again) < minWarning-time.Second || at[0].Sub(again) > minWarning+time.Second {
					t.Errorf("fresh again at %v, removed at %v", again, at)
				}
			})
		})
	}
}

func TestAfterEtcdWentBackNothingIsRemovedUntilAnOperatorConfirms(t *testing.T) {
	for name, restore := range map[string]func(*store){
		"a lower revision":                      func(s *store) { s.revision -= 50 },
		"a lower raft term, the revision ahead": func(s *store) { s.revision, s.term = s.revision+1000, s.term-1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				n := s.join(t)
				s.take("a", time.Second, 2*time.Minute)
				wait(100 * time.Second)
				s.set(func() { restore(s) })
				wait(10 * time.Hour)
				s.mustHave(t, "a")
				if got := n.Status(); got.Forward || got.HeldBack[staleness.Revision] != 1 {
					t.Errorf("status %+v", got)
				}
				if lines := n.log("etcd went back: nothing is removed until an operator confirms"); len(lines) != 1 {
					t.Errorf("logged %d times", len(lines))
				}
				if got := s.presence[n.id].HeldBack; len(got) != 1 || got[0] != "revision" {
					t.Errorf("announced as held back: %v", got)
				}
				n.Confirm()
				confirmed := time.Now()
				wait(time.Hour)
				s.mustBeRemovedOnceAt(t, "a", confirmed.Add(minWarning))
				n.Confirm() // is harmless
			})
		})
	}
}
