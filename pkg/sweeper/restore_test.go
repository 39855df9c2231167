package sweeper_test

import (
	"math"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// long is enough time for a fault to show.
const long = 3 * time.Hour

func TestRestoredEtcdStopsRemovalsUntilARestart(t *testing.T) {
	for name, restore := range map[string]func(*store){
		"a lower revision":                      func(s *store) { s.revision = 1000 },
		"a lower raft term, the revision ahead": func(s *store) { s.revision, s.term = s.revision+1000, s.term-1 },
	} {
		t.Run(name, simulated(func(t *testing.T, s *store) {
			s.revision = 1_000_000
			n := s.join(t)
			s.take("a", time.Second, 2*time.Minute)
			s.wait(100 * time.Second)
			s.set(func() { restore(s) })
			s.wait(long)
			s.mustHave(t, "a")
			n.must(t, func(s sweeper.Status) bool { return s.HeldBack[staleness.RuleRevision] == 1 })
			n.mustLog(t, 1, "etcd went back to an older state: nothing is removed until this unlocker is restarted, "+
				"which confirms it")
			if got := s.presence[n.id].HeldBack; len(got) != 1 || got[0] != "revision" {
				t.Errorf("announced as held back: %v", got)
			}
			n.leave()
			s.join(t)
			restarted := time.Now()
			s.wait(time.Hour)
			s.mustBeRemovedOnceAt(t, "a", restarted.Add(minWarning))
		}))
	}
}

// An unlocker that starts after a restore cannot notice it; one that ran before does.
func TestPeersRevealARestoredEtcd(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.revision = 1_000_000
		old := s.join(t, withPeers)
		s.take("a", time.Second, 2*time.Minute)
		s.wait(100 * time.Second)
		s.set(func() { s.revision = 1000 })
		n := s.join(t, withPeers)
		s.wait(long)
		s.mustHave(t, "a")
		n.must(t, func(s sweeper.Status) bool { return s.HeldBack[staleness.RuleRevision] == 1 })
		n.mustLog(t, 1, "etcd went back to an older state: nothing is removed while an unlocker runs that saw a later "+
			"one; its restart confirms it", "peer", old.id)
		old.leave()
		left := time.Now()
		s.wait(time.Hour)
		s.mustGo(t, "a", left, minWarning, minWarning+20*time.Second)
	})
}

func TestUnlockersRestartedInTurnConfirmARestore(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.revision = 1_000_000
		first := s.join(t, withPeers)
		second := s.join(t, withPeers)
		s.take("a", time.Second, 2*time.Minute)
		s.wait(100 * time.Second)
		s.set(func() { s.revision = 1000 })
		s.wait(10 * time.Minute)
		for _, n := range []*node{first, second} {
			s.join(t, withPeers)
			s.wait(10 * time.Second)
			n.leave()
			s.mustHave(t, "a")
		}
		s.wait(time.Minute)
		s.mustGoOnce(t, "a")
	})
}

func TestStalePresencesDoNotHoldBackRemovals(t *testing.T) {
	type unlocker struct {
		id       string
		age      time.Duration
		revision int64
	}
	for name, c := range map[string]unlocker{
		"one that was left over":               {"ghost", 20 * time.Second, 1_000_000},
		"one that never moves":                 {"ghost", 0, math.MaxInt64},
		"one that cannot be read":              {"ghost", 0, math.MinInt64},
		"the own one of a process before this": {"unlocker-1", 0, math.MaxInt64},
	} {
		t.Run(name, simulated(func(t *testing.T, s *store) {
			s.join(t, func(_ *node, cfg *sweeper.Config) {
				cfg.Peers = func() []metadata.Presence {
					return []metadata.Presence{{ID: c.id, Revision: c.revision, ArrivedAt: time.Now().Add(-c.age)}}
				}
			})
			s.take("a", time.Second, 2*time.Minute)
			deadline := time.Now().Add(2 * time.Minute)
			s.wait(time.Hour)
			s.mustBeRemovedOnceAt(t, "a", deadline.Add(skew))
		}))
	}
}

// A nonsensical presence holds removals back only while it is being written.
func TestLyingPeerDoesNotHoldBackForever(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.join(t, withPeers)
		s.take("a", time.Second, 2*time.Minute)
		for range 300 {
			s.set(func() {
				s.presence["liar"], s.arrived["liar"] = metadata.Presence{ID: "liar",
					Now: metadata.Time{Time: time.Now()}, Revision: math.MaxInt64}, time.Now()
			})
			s.wait(time.Second)
		}
		s.mustHave(t, "a")
		s.wait(20*time.Second + minWarning)
		s.mustGoOnce(t, "a")
	})
}
