package staleness_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// dead attaches a proof of the holder's death, first seen at that moment.
func dead(seen time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) {
		lockrecord.AttachStatements(r, &metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token,
			Cause: metadata.CauseProcessEnded, Revision: 9, Seen: seen}, nil)
	}
}

func suspected(r *metadata.Record) {
	lockrecord.AttachStatements(r, nil, &metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token,
		Cause: metadata.CausePodDeleted})
}

// disputed is a holder that called alive after its death was stated.
func disputed(r *metadata.Record) {
	r.Alive = &metadata.Alive{At: r.LockedAt.Add(time.Second), Revision: 10}
}

func detached(r *metadata.Record) { r.Process = &metadata.Process{Detached: true} }

// unlocks is a policy that unlocks abandoned locks after ten seconds.
func unlocks(change ...func(*Policy)) Policy {
	p := DefaultPolicy()
	p.UnlockAbandoned = true
	for _, c := range change {
		c(&p)
	}
	return p
}

func reports(p *Policy) { p.UnlockAbandoned = false }
func noGrace(p *Policy) { p.AbandonedGrace = 0 }

func TestJudgeDeadHolders(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		record *metadata.Record
		now    time.Duration
		want   metadata.State
	}{
		{"a lock whose holder is proven dead is abandoned", lock(dead(s)), 2 * s, metadata.StateAbandoned},
		{"also while it alerts", lock(dead(s)), 61 * s, metadata.StateAbandoned},
		{"past auto_unlock_at it is expired", lock(dead(s)), 120 * s, metadata.StateExpired},
		{"a malformed record stays malformed", lock(noAlertAt, dead(s)), 2 * s, metadata.StateMalformed},
		{"a suspicion changes nothing", lock(suspected), 2 * s, metadata.StateHeld},
		{"a death that its holder disputes is not believed", lock(dead(s), disputed), 2 * s, metadata.StateHeld},
		{"the end of a detached holder proves nothing", lock(dead(s), detached), 2 * s, metadata.StateHeld},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []Policy{unlocks(), unlocks(reports)} {
				if got := Judge(c.record, p, at(c.now)); got.State != c.want {
					t.Errorf("%+v, want %s", got, c.want)
				}
			}
		})
	}
}

func TestJudgementHasItsStartAndEnd(t *testing.T) {
	r := lock(dead(3 * time.Second))
	v := Judge(r, unlocks(), at(5*time.Second))
	if v.AbandonedAt != start.Add(3*time.Second) || v.RemoveAt != start.Add(13*time.Second) {
		t.Errorf("since %v, until %v", v.AbandonedAt, v.RemoveAt)
	}
	if v.Next != start.Add(2*time.Minute) {
		t.Errorf("the next state comes at %v", v.Next)
	}
	if v := Judge(r, unlocks(reports), at(5*time.Second)); v.AbandonedAt.IsZero() || !v.RemoveAt.IsZero() {
		t.Errorf("where it is only reported: since %v, until %v", v.AbandonedAt, v.RemoveAt)
	}
	for _, living := range []*metadata.Record{lock(), lock(suspected), lock(dead(0), disputed),
		lock(dead(0), detached)} {
		if v := Judge(living, unlocks(), at(5*time.Second)); !v.AbandonedAt.IsZero() || !v.RemoveAt.IsZero() {
			t.Errorf("of a living holder: since %v, until %v", v.AbandonedAt, v.RemoveAt)
		}
	}
}

// TestDecideDeadHolders: the deadline is at 120 s, the grace 10 s, and the death was first seen at 20 s.
func TestDecideDeadHolders(t *testing.T) {
	const s = time.Second
	died := lock(dead(20 * s))
	proof := func(heldBack Rule, at time.Duration) Decision {
		return Decision{HeldBack: heldBack, At: at, Proof: true}
	}
	for _, c := range []struct {
		name   string
		record *metadata.Record
		policy Policy
		cond   Conditions
		now    time.Duration
		want   Decision
	}{
		{"the dead have a grace", died, unlocks(), good(), 20 * s, proof(RuleDeadline, 30*s)},
		{"to its last nanosecond", died, unlocks(), good(), 30*s - 1, proof(RuleDeadline, 30*s)},
		{"then it is removed, long before its deadline", died, unlocks(), good(), 30 * s, proof("", 30*s)},
		{"without a grace at once", died, unlocks(noGrace), good(), 20 * s, proof("", 20*s)},
		{"an operator who wants reports gets reports", died, unlocks(reports), good(), 119 * s,
			decision(RuleDeadline, 125*s)},
		{"and removal by the deadline", died, unlocks(reports), good(), 125 * s, decision("", 125*s)},

		{"a gap is no reason to wait", died, unlocks(), good(gapAt(30 * s)), 30 * s, proof("", 30*s)},
		{"nor is a clock that cannot be verified", died, unlocks(), good(unverified), 30 * s, proof("", 30*s)},
		{"nor one that disagrees", died, unlocks(), good(wrongClock), 30 * s, proof("", 30*s)},
		{"nor a holder whose clock is ahead", lock(behind(-24*time.Hour), arrivedAt(s), dead(20*s)), unlocks(),
			good(), 30 * s, proof("", 30*s)},
		{"nor what its holder asked for", lock(arrivedAt(s), dead(20*s)), unlocks(), good(), 30 * s, proof("", 30*s)},
		{"nor a deadline that cannot be read", lock(noAutoUnlockAt, dead(20*s)), unlocks(), good(), 30 * s,
			proof("", 30*s)},

		{"nothing is removed while etcd takes no writes", died, unlocks(), good(unwritable), 30 * s,
			proof(RuleEtcd, 30*s)},
		{"nor from a view that is not fresh", died, unlocks(), good(notFresh), 30 * s, proof(RuleStale, 30*s)},
		{"nor after etcd went back", died, unlocks(), good(wentBack), 30 * s, proof(RuleRevision, 30*s)},
		{"nor with alerts only", died, unlocks(), good(onlyAlerts), 30 * s, proof(RuleAlertOnly, 30*s)},
		{"nor what is excluded", died, unlocks(), good(excludesAll), 30 * s, proof(RuleExclude, 30*s)},
		{"the zero conditions allow nothing", died, unlocks(), Conditions{}, 30 * s, proof(RuleRevision, 30*s)},

		{"a suspicion is no proof", lock(suspected), unlocks(), good(), 119 * s, decision(RuleDeadline, 125*s)},
		{"a disputed death is none", lock(dead(20*s), disputed), unlocks(), good(), 119 * s,
			decision(RuleDeadline, 125*s)},
		{"the end of a detached holder is none", lock(dead(20*s), detached), unlocks(), good(), 119 * s,
			decision(RuleDeadline, 125*s)},

		{"a deadline that is over needs no grace", lock(dead(120 * s)), unlocks(), good(), 125 * s,
			decision("", 125*s)},
		{"a deadline that is over and held back waits for the grace at most", lock(dead(120 * s)), unlocks(),
			good(gapAt(120 * s)), 125 * s, proof(RuleGap, 130*s)},
		{"a deadline that comes before the end of the grace", lock(dead(118 * s)), unlocks(), good(), 119 * s,
			decision(RuleDeadline, 125*s)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Decide(c.record, c.policy, c.cond, at(c.now)); got != c.want {
				t.Errorf("after %v: got %+v, want %+v", c.now, got, c.want)
			}
		})
	}
}
