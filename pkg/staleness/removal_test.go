package staleness_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// good are the conditions of an unlocker without trouble since start.
func good(change ...func(*Conditions)) Conditions {
	c := Conditions{Writable: true, Fresh: true, NeverWentBack: true, WallClock: ClockVerified}
	for _, f := range change {
		f(&c)
	}
	return c
}

func unverified(c *Conditions)  { c.WallClock = ClockUnverified }
func wrongClock(c *Conditions)  { c.WallClock = ClockWrong }
func unwritable(c *Conditions)  { c.Writable = false }
func notFresh(c *Conditions)    { c.Fresh = false }
func wentBack(c *Conditions)    { c.NeverWentBack = false }
func onlyAlerts(c *Conditions)  { c.AlertOnly = true }
func excludesAll(c *Conditions) { c.Excluded = func(string) bool { return true } }

func gapAt(d time.Duration) func(*Conditions) { return func(c *Conditions) { c.LastGap = d } }

func changedAt(d time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) { r.Seen.Changed = d }
}

func aliveAt(d time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) { r.Alive = &metadata.Alive{At: start.Add(d)} }
}

// behind sets back the clock that wrote the record.
func behind(d time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) {
		r.LockedAt = r.LockedAt.Add(-d)
		r.AlertAt = r.AlertAt.Add(-d)
		r.AutoUnlockAt = r.AutoUnlockAt.Add(-d)
	}
}

// arrivedAt returns a record whose arrival was watched.
func arrivedAt(d time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) { r.Seen.Changed, r.Seen.Arrived = d, d }
}

// givenAt returns a record whose last change was an operator giving more time.
func givenAt(d time.Duration) func(*metadata.Record) {
	return func(r *metadata.Record) {
		r.MoreTime = &metadata.MoreTime{By: "ann"}
		r.Seen.Changed = d
	}
}

func lockedAt(t time.Time) func(*metadata.Record) { return func(r *metadata.Record) { r.LockedAt = t } }

func decision(heldBack Rule, at time.Duration) Decision { return Decision{HeldBack: heldBack, At: at} }

// TestDecide: skew 5 s, min-warning 30 s; the lock of these cases expires after 120 s.
func TestDecide(t *testing.T) {
	const s = time.Second
	never := func(string) bool { return false }
	for _, c := range []struct {
		name   string
		record *metadata.Record
		cond   Conditions
		now    time.Duration
		want   Decision
	}{
		{"a lock is not removed before its deadline", lock(), good(), 119 * s, decision(RuleDeadline, 125*s)},
		{"nor at its deadline: clocks may differ by the skew", lock(), good(), 120 * s, decision(RuleDeadline, 125*s)},
		{"nor one nanosecond before deadline and skew", lock(), good(), 125*s - 1, decision(RuleDeadline, 125*s)},
		{"it is removed at deadline and skew", lock(), good(), 125 * s, decision("", 125*s)},

		{"a gap starts the warning anew", lock(), good(gapAt(110 * s)), 125 * s, decision(RuleGap, 140*s)},
		{"until the warning has lasted without a gap", lock(), good(gapAt(110 * s)), 140*s - 1,
			decision(RuleGap, 140*s)},
		{"then it is removed", lock(), good(gapAt(110 * s)), 140 * s, decision("", 140*s)},
		{"nothing is removed right after a restart, however long ago the deadline was", lock(changedAt(time.Hour)),
			good(gapAt(time.Hour)), time.Hour, decision(RuleGap, time.Hour+30*s)},
		{"an extension starts the warning anew", lock(changedAt(121 * s)), good(), 125 * s,
			decision(RuleWarning, 151*s)},
		{"a lock that began to alert late is warned of in full",
			lock(func(r *metadata.Record) { r.AlertAt = start.Add(118 * s) }), good(), 125 * s,
			decision(RuleWarning, 148*s)},
		{"a lock that never alerts is warned of as expired", lock(alertLast), good(), 125 * s,
			decision(RuleWarning, 150*s)},
		{"a lock without alert_at is warned of as expired", lock(noAlertAt), good(), 125 * s,
			decision(RuleWarning, 150*s)},
		{"a gap is named before the warning of one lock", lock(alertLast), good(gapAt(110 * s)), 125 * s,
			decision(RuleGap, 150*s)},
		{"a lock without uuid is warned of as expired, then removed", lock(noUUID), good(), 150 * s,
			decision("", 150*s)},

		{"nothing is removed while etcd takes no writes", lock(), good(unwritable), 125 * s, decision(RuleEtcd, 125*s)},
		{"nothing is removed from a view that is not fresh", lock(), good(notFresh), 125 * s,
			decision(RuleStale, 125*s)},
		{"nothing is removed after etcd went back", lock(), good(wentBack), 125 * s, decision(RuleRevision, 125*s)},
		{"nothing is removed by a clock that disagrees", lock(), good(wrongClock), time.Hour,
			decision(RuleClock, Never)},
		{"a clock that disagrees is named before a gap", lock(), good(wrongClock, gapAt(124*s)), 125 * s,
			decision(RuleClock, Never)},

		{"an unverified clock removes a lock watched for its whole time to live", lock(), good(unverified), 125 * s,
			decision("", 125*s)},
		{"but not one first seen after a restart", lock(changedAt(60 * s)), good(unverified), 125 * s,
			decision(RuleUnverified, 180*s)},
		{"until it was watched that long", lock(changedAt(60 * s)), good(unverified), 180*s - 1,
			decision(RuleUnverified, 180*s)},
		{"then it is removed, too", lock(changedAt(60 * s)), good(unverified), 180 * s, decision("", 180*s)},
		{"the time to live counts from the last alive call", lock(changedAt(60*s), aliveAt(50*s)), good(unverified),
			130 * s, decision("", 130*s)},
		{"an alive that cannot be read counts for nothing",
			lock(changedAt(60*s), func(r *metadata.Record) { r.Alive = &metadata.Alive{} }), good(unverified),
			130 * s, decision(RuleUnverified, 180*s)},
		{"an alive behind the deadline counts for nothing", lock(changedAt(60*s), aliveAt(time.Hour)),
			good(unverified), 130 * s, decision(RuleUnverified, 180*s)},
		{"more time from an operator, for a lock that was watched arriving, is no longer than was given",
			lock(arrivedAt(s), givenAt(60*s)), good(unverified), 125 * s, decision("", 125*s)},
		{"more time from an operator, for a lock that was listed, counts from then", lock(givenAt(60 * s)),
			good(unverified), 130 * s, decision(RuleUnverified, 180*s)},
		{"more time from an operator starts the warning anew", lock(arrivedAt(s), givenAt(110*s)), good(),
			125 * s, decision(RuleWarning, 140*s)},
		{"without a known time to live only a verified clock helps", lock(lockedAt(time.Time{})), good(unverified),
			time.Hour, decision(RuleUnverified, Never)},
		{"a locked_at behind the deadline counts for nothing", lock(lockedAt(start.Add(time.Hour))), good(unverified),
			time.Hour, decision(RuleUnverified, Never)},
		{"a verified clock needs no time to live", lock(lockedAt(time.Time{})), good(), time.Hour, decision("", 125*s)},

		{"what was watched arriving stays for its time to live, whatever its deadline says",
			lock(behind(6*time.Minute), arrivedAt(10*s)), good(), 129 * s, decision(RuleDeadline, 135*s)},
		{"and is removed then, when the skew is over too", lock(behind(6*time.Minute), arrivedAt(10*s)), good(),
			135 * s, decision("", 135*s)},
		{"it is not known of what was listed", lock(behind(6 * time.Minute)), good(), 31 * s, decision("", 30*s)},
		{"a right clock costs nothing", lock(arrivedAt(s)), good(), 125 * s, decision("", 125*s)},
		{"a clock that is behind by less than counts costs nothing but that", lock(behind(20*s), arrivedAt(s)),
			good(), 120 * s, decision(RuleDeadline, 121*s)},
		{"the time to live counts from when the last alive arrived",
			lock(behind(6*time.Minute), aliveAt(-6*time.Minute+50*s), arrivedAt(50*s)), good(), 125 * s,
			decision("", 125*s)},
		{"a clock that is ahead makes it late, as its deadline says", lock(behind(-time.Hour), arrivedAt(s)), good(),
			time.Hour, decision(RuleDeadline, time.Hour+125*s)},

		{"with alerts only nothing is removed", lock(), good(onlyAlerts), 125 * s, decision(RuleAlertOnly, 125*s)},
		{"an excluded lock is not removed", lock(), good(excludesAll), 125 * s, decision(RuleExclude, 125*s)},
		{"an exclusion of others does not matter", lock(), good(func(c *Conditions) { c.Excluded = never }), 125 * s,
			decision("", 125*s)},
		{"without a deadline it is never removed", lock(noAutoUnlockAt), good(), 1000 * time.Hour,
			decision(RuleDeadline, Never)},
		{"the zero conditions allow nothing", lock(), Conditions{}, time.Hour, decision(RuleRevision, 125*s)},
		{"a deadline in 2286 is no overflow",
			lock(func(r *metadata.Record) { r.AutoUnlockAt = time.Unix(9_999_999_999, 999_999_999) }), good(), 0,
			decision(RuleDeadline, time.Unix(9_999_999_999, 999_999_999).Sub(start)+5*s)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(c.record, DefaultPolicy(), c.cond, at(c.now))
			if got != c.want {
				t.Errorf("after %v: got %+v, want %+v", c.now, got, c.want)
			}
		})
	}
}

func TestDefaultDeadlinesUseTheMonotonicClock(t *testing.T) {
	p := DefaultPolicy()
	p.DefaultAutoUnlockAfter = 2 * time.Hour
	r := lock(noAlertAt, noAutoUnlockAt)
	for _, off := range []time.Duration{0, -3 * time.Hour, 3 * time.Hour} {
		now := at(2*time.Hour + 5*time.Second - 1)
		now.Wall = now.Wall.Add(off)
		if got := Decide(r, p, good(unverified), now); got.HeldBack != RuleDeadline {
			t.Errorf("clock off by %v: %+v before the deadline", off, got)
		}
		now.Mono++
		now.Wall = now.Wall.Add(1)
		if got := Decide(r, p, good(unverified), now); got.HeldBack != "" {
			t.Errorf("clock off by %v: %+v after the deadline", off, got)
		}
	}
}

func TestExtremeTimesDoNotOverflow(t *testing.T) {
	extremes := []time.Time{{}, time.Unix(0, 0), start, time.Unix(9_999_999_999, 999_999_999)}
	for _, wall := range extremes {
		for _, deadline := range extremes[1:] {
			r := lock(lockedAt(time.Unix(0, 0)), func(r *metadata.Record) {
				r.AlertAt = deadline
				r.AutoUnlockAt = deadline
			})
			for _, cond := range []Conditions{good(), good(unverified)} {
				got := Decide(r, DefaultPolicy(), cond, Moment{Wall: wall, Mono: 100 * time.Hour})
				if removed := got.HeldBack == ""; removed && wall.Before(deadline.Add(5*time.Second)) {
					t.Errorf("wall %v removes a lock with deadline %v: %+v", wall, deadline, got)
				}
			}
		}
	}
}

// TestAtIsExact: while nothing changes, the lock is held back until one nanosecond before At, and at At it is removed.
func TestAtIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	removed := 0
	for range 20_000 {
		r := randomRecord(random)
		p := randomPolicy(random)
		cond := good(gapAt(time.Duration(random.IntN(400)) * time.Second))
		if random.IntN(2) == 0 {
			cond.WallClock = ClockUnverified
		}
		now := max(r.Seen.Changed, cond.LastGap) + time.Duration(random.IntN(200))*time.Second
		d := Decide(r, p, cond, at(now))
		switch {
		case d.HeldBack == "" && d.At > now || d.HeldBack != "" && d.At <= now:
			t.Fatalf("%v: %+v contradicts itself\n%+v\n%+v", now, d, *r, p)
		case d.HeldBack == "" || d.At == Never:
			continue
		}
		removed++
		if early := Decide(r, p, cond, at(d.At-1)); early.HeldBack == "" {
			t.Fatalf("removed one nanosecond before %v\n%+v\n%+v", d.At, *r, p)
		}
		if then := Decide(r, p, cond, at(d.At)); then.HeldBack != "" {
			t.Fatalf("held back by %s at %v\n%+v\n%+v", then.HeldBack, d.At, *r, p)
		}
	}
	if removed < 1000 {
		t.Errorf("only %d records were removed", removed)
	}
}
