package sweeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

func TestClockJumpCostsNoLock(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		for name, join := range map[string]func(*testing.T, *store) *node{
			"with members of etcd to ask": func(t *testing.T, s *store) *node { return s.join(t) },
			"with peers": func(t *testing.T, s *store) *node {
				s.join(t, withoutMembers)
				return s.join(t, withoutMembers, withPeers)
			},
			"with nobody to ask": func(t *testing.T, s *store) *node { return s.join(t, withoutMembers) },
		} {
			t.Run(by.String()+" "+name, simulated(func(t *testing.T, s *store) {
				h := s.hold(t, "living", 90*time.Second, 0)
				n := join(t, s)
				s.wait(100 * time.Second)
				n.jump(by)
				s.wait(long)
				h.mustHold(t)
				n.must(t, func(s sweeper.Status) bool { return s.ClockJumps == 1 })
			}))
		}
	}
}

func TestClockWrongFromTheStartCostsNoLock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		for name, withMembers := range map[string]bool{"with members of etcd to ask": true,
			"with nobody to ask": false} {
			t.Run(by.String()+" "+name, simulated(func(t *testing.T, s *store) {
				h := s.hold(t, "living", 90*time.Second, 0)
				s.take("dead", time.Minute, 10*time.Minute)
				s.wait(45 * time.Second)
				n := s.join(t, ahead(by))
				if !withMembers {
					n.leave()
					n = s.join(t, ahead(by), withoutMembers)
				}
				started := time.Now()
				s.wait(5 * time.Hour)
				h.mustHold(t)
				switch at := s.removals("dead"); {
				case withMembers && len(at) > 0:
					t.Errorf("a clock that disagrees removed a lock at %v", at)
				case withMembers && by > 0 && n.Status().HeldBack[staleness.RuleClock] == 0:
					t.Errorf("status %+v", n.Status())
				case !withMembers && (len(at) != 1 || at[0].Sub(started) < 10*time.Minute):
					t.Errorf("unverified, started at %v, removed at %v: want after the whole time to live", started, at)
				}
			}))
		}
	}
}

func TestUnverifiedClockCostsTimeOnlyAfterARestart(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, withoutMembers)
		s.take("watched from its beginning", time.Second, 5*time.Minute)
		deadline := time.Now().Add(5 * time.Minute)
		s.wait(10 * time.Minute)
		s.mustBeRemovedOnceAt(t, "watched from its beginning", deadline.Add(skew))

		s.take("seen after a restart", time.Second, 5*time.Minute)
		s.wait(4 * time.Minute)
		n.leave()
		n = s.join(t, withoutMembers)
		restarted := time.Now()
		s.wait(2 * time.Minute)
		n.must(t, func(s sweeper.Status) bool {
			return s.HeldBack[staleness.RuleUnverified] == 1 && s.HeldBack[staleness.RuleClock] == 0 &&
				s.WallClock == staleness.ClockUnverified
		})
		s.wait(time.Hour)
		s.mustBeRemovedOnceAt(t, "seen after a restart", restarted.Add(5*time.Minute))
	})
}

func TestClockVerificationAllowsRemovalAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.take("a", time.Second, time.Hour)
		s.wait(2 * time.Hour)
		n := s.join(t, withoutMembers, withPeers)
		s.wait(10 * time.Minute)
		s.mustHave(t, "a")
		s.join(t, withoutMembers)
		joined := time.Now()
		s.wait(5 * time.Second)
		s.mustGo(t, "a", joined, 0, 4*time.Second)
		n.must(t, func(s sweeper.Status) bool { return s.WallClock == staleness.ClockVerified })
		if lag := gather(t, n)["unlocker_removal_lag_seconds"].GetMetric()[0].GetHistogram().GetSampleSum(); lag > 1 {
			t.Errorf("lag %v s: it counts from the moment at which the clock was verified", lag)
		}
	})
}

func TestClockVerification(t *testing.T) {
	once := func(n *node) []time.Duration {
		if n.clock() == 0 {
			return []time.Duration{0}
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		members func(n *node) []time.Duration // what they answer
		peers   func() []metadata.Presence
		after   time.Duration
		want    staleness.ClockStatus
		offset  time.Duration
	}{
		{"members that do not answer are asked again soon", func(n *node) []time.Duration {
			if n.clock() == 0 {
				return nil
			}
			return []time.Duration{time.Second}
		}, nil, 12 * time.Second, staleness.ClockVerified, -time.Second},
		{"an answer counts for a while", once, nil, 4 * time.Minute, staleness.ClockVerified, 0},
		{"it does not count for ever", once, nil, 6 * time.Minute, staleness.ClockUnverified, 0},
		{"a jump while members are asked spoils the answer", func(n *node) []time.Duration {
			if n.clock() == 0 {
				n.jump(time.Hour) // the members agreed with the clock as it was before
			}
			return []time.Duration{0}
		}, nil, 5 * time.Second, staleness.ClockUnverified, 0},
		{"a silent peer does not count", func(*node) []time.Duration { return nil }, func() []metadata.Presence {
			return []metadata.Presence{{ID: "peer", Now: metadata.Time{Time: time.Now()},
				ArrivedAt: time.Now().Add(-16 * time.Second)}}
		}, 5 * time.Second, staleness.ClockUnverified, 0},
		{"a small skew tolerates the imprecision of the network",
			func(*node) []time.Duration { return []time.Duration{1900 * time.Millisecond} }, nil, time.Second,
			staleness.ClockVerified, -2 * time.Second},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			n := s.join(t, func(n *node, cfg *sweeper.Config) {
				cfg.Policy.ClockSkew = 100 * time.Millisecond
				cfg.Offsets = func(context.Context) []time.Duration { return c.members(n) }
				if c.peers != nil {
					cfg.Peers = c.peers
				}
			})
			s.wait(c.after)
			n.must(t, func(s sweeper.Status) bool {
				return s.WallClock == c.want && s.Offset.Round(time.Second) == c.offset
			})
		}))
	}
}

func TestMedianOfPeerClocksIsTrusted(t *testing.T) {
	for _, c := range []struct {
		name   string
		others []time.Duration
		own    time.Duration
		want   staleness.ClockStatus
	}{
		{"one that agrees is enough", []time.Duration{0}, 0, staleness.ClockVerified},
		{"within the skew is good enough", []time.Duration{0}, 4 * time.Second, staleness.ClockVerified},
		{"beyond the skew is not", []time.Duration{0}, 6 * time.Second, staleness.ClockWrong},
		{"one wrong peer of three does not matter", []time.Duration{0, 0, time.Hour}, 0, staleness.ClockVerified},
		{"of two that disagree neither is believed", []time.Duration{0, time.Hour}, 0, staleness.ClockWrong},
		{"most are wrong", []time.Duration{time.Hour, time.Hour, 0}, 0, staleness.ClockWrong},
		{"a record about itself does not count", nil, 0, staleness.ClockUnverified},
	} {
		t.Run(c.name, simulated(func(t *testing.T, s *store) {
			for _, off := range c.others {
				s.join(t, withoutMembers, ahead(off))
			}
			n := s.join(t, withoutMembers, withPeers, ahead(c.own))
			s.wait(10 * time.Second)
			n.must(t, func(s sweeper.Status) bool { return s.WallClock == c.want })
		}))
	}
}

func TestClockOfAGonePeerDoesNotCount(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		old := s.join(t, withoutMembers, ahead(time.Hour))
		s.wait(10 * time.Second)
		old.leave()
		s.wait(5 * time.Second)
		n := s.join(t, withoutMembers, withPeers) // finds a record that nobody renews
		s.wait(3 * time.Second)
		n.must(t, func(s sweeper.Status) bool { return s.WallClock == staleness.ClockUnverified })
	})
}
