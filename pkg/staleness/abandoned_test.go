package staleness_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// dead attaches a proof that the holder has ended, first seen at that moment.
func dead(seen time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) {
		r.Heed(&metadata.Statement{Lock: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseProcessEnded,
			Revision: 9, Seen: seen}, nil)
	}
}

func suspected(r *metadata.Record) {
	r.Heed(nil, &metadata.Statement{Lock: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CausePodDeleted})
}

// disputed is a holder that called alive after its death was stated.
func disputed(r *metadata.Record) {
	r.Alive = &metadata.Alive{At: r.LockedAt.Add(time.Second), Revision: 10}
}

func detached(r *metadata.Record) { r.Process = &metadata.Process{Detached: true} }

// unlocks is the policy of an operator who wants abandoned locks unlocked, after ten seconds.
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

func TestJudgeOfTheDead(t *testing.T) {
	const sec = time.Second
	for _, c := range []struct {
		name   string
		record *metadata.Record
		now    time.Duration
		want   State
	}{
		{"a lock whose holder is proven dead is abandoned", lock(dead(sec)), 2 * sec, Abandoned},
		{"also while it alerts", lock(dead(sec)), 61 * sec, Abandoned},
		{"past auto_unlock_at it is expired", lock(dead(sec)), 120 * sec, Expired},
		{"a malformed record stays malformed", lock(noAlertAt, dead(sec)), 2 * sec, Malformed},
		{"a suspicion changes nothing", lock(suspected), 2 * sec, Held},
		{"a death that its holder disputes is not believed", lock(dead(sec), disputed), 2 * sec, Held},
		{"the end of a detached holder proves nothing", lock(dead(sec), detached), 2 * sec, Held},
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

func TestTheVerdictSaysSinceWhenAndUntilWhen(t *testing.T) {
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
	for _, living := range []*metadata.Record{lock(), lock(suspected), lock(dead(0), disputed), lock(dead(0), detached)} {
		if v := Judge(living, unlocks(), at(5*time.Second)); !v.AbandonedAt.IsZero() || !v.RemoveAt.IsZero() {
			t.Errorf("of a living holder: since %v, until %v", v.AbandonedAt, v.RemoveAt)
		}
	}
}

// TestDecideOfTheDead: the deadline is at 120 s, the grace 10 s, and the death was first seen at 20 s.
func TestDecideOfTheDead(t *testing.T) {
	const sec = time.Second
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
		{"the dead have a grace", lock(dead(20 * sec)), unlocks(), good(), 20 * sec, proof(Deadline, 30*sec)},
		{"to its last nanosecond", lock(dead(20 * sec)), unlocks(), good(), 30*sec - 1, proof(Deadline, 30*sec)},
		{"then it is removed, long before its deadline", lock(dead(20 * sec)), unlocks(), good(), 30 * sec,
			proof("", 30*sec)},
		{"without a grace at once", lock(dead(20 * sec)), unlocks(noGrace), good(), 20 * sec, proof("", 20*sec)},
		{"an operator who wants reports gets reports", lock(dead(20 * sec)), unlocks(reports), good(), 119 * sec,
			decision(Deadline, 125*sec)},
		{"and removal by the deadline", lock(dead(20 * sec)), unlocks(reports), good(), 125 * sec, decision("", 125*sec)},

		{"a gap is no reason to wait", lock(dead(20 * sec)), unlocks(), good(gapAt(30 * sec)), 30 * sec,
			proof("", 30*sec)},
		{"nor is a clock that cannot be verified", lock(dead(20 * sec)), unlocks(), good(unverified), 30 * sec,
			proof("", 30*sec)},
		{"nor one that disagrees", lock(dead(20 * sec)), unlocks(), good(wrongClock), 30 * sec, proof("", 30*sec)},
		{"nor a holder whose clock is ahead", lock(behind(-24*time.Hour), arrivedAt(sec), dead(20*sec)), unlocks(), good(),
			30 * sec, proof("", 30*sec)},
		{"nor what its holder asked for", lock(arrivedAt(sec), dead(20*sec)), unlocks(), good(), 30 * sec,
			proof("", 30*sec)},
		{"nor a deadline that cannot be read", lock(noAutoUnlockAt, dead(20*sec)), unlocks(), good(), 30 * sec,
			proof("", 30*sec)},

		{"nothing is removed while etcd takes no writes", lock(dead(20 * sec)), unlocks(), good(unwritable), 30 * sec,
			proof(Etcd, 30*sec)},
		{"nor from a view that is not fresh", lock(dead(20 * sec)), unlocks(), good(notFresh), 30 * sec,
			proof(Stale, 30*sec)},
		{"nor after etcd went back", lock(dead(20 * sec)), unlocks(), good(wentBack), 30 * sec, proof(Revision, 30*sec)},
		{"nor with alerts only", lock(dead(20 * sec)), unlocks(), good(onlyAlerts), 30 * sec, proof(AlertOnly, 30*sec)},
		{"nor what is excluded", lock(dead(20 * sec)), unlocks(), good(excludesAll), 30 * sec, proof(Exclude, 30*sec)},
		{"the zero conditions allow nothing", lock(dead(20 * sec)), unlocks(), Conditions{}, 30 * sec,
			proof(Revision, 30*sec)},

		{"a suspicion is no proof", lock(suspected), unlocks(), good(), 119 * sec, decision(Deadline, 125*sec)},
		{"a disputed death is none", lock(dead(20*sec), disputed), unlocks(), good(), 119 * sec,
			decision(Deadline, 125*sec)},
		{"the end of a detached holder is none", lock(dead(20*sec), detached), unlocks(), good(), 119 * sec,
			decision(Deadline, 125*sec)},

		{"a deadline that is over needs no grace", lock(dead(120 * sec)), unlocks(), good(), 125 * sec,
			decision("", 125*sec)},
		{"a deadline that is over and held back waits for the grace at most", lock(dead(120 * sec)), unlocks(),
			good(gapAt(120 * sec)), 125 * sec, proof(Gap, 130*sec)},
		{"a deadline that comes before the end of the grace", lock(dead(118 * sec)), unlocks(), good(), 119 * sec,
			decision(Deadline, 125*sec)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Decide(c.record, c.policy, c.cond, at(c.now)); got != c.want {
				t.Errorf("after %v: got %+v, want %+v", c.now, got, c.want)
			}
		})
	}
}
