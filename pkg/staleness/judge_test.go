package staleness_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// start is the wall time at which the monotonic clock of these tests shows zero.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a moment after start on two clocks that agree.
func at(after time.Duration) Moment { return Moment{Wall: start.Add(after), Mono: after} }

// lock is a sound record: taken at start, alerting after one minute, auto-unlocked after two.
func lock(change ...func(*metadata.Record)) *metadata.Record {
	r := &metadata.Record{
		Name: "billing/invoice/42", UUID: "4be0643f-1d98-573b-97cd-ca98a65347dd", Token: 7, Revision: 7,
		DeadlineRevision: 7,
		LockedAt:         start, AlertAt: start.Add(time.Minute), AutoUnlockAt: start.Add(2 * time.Minute),
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func noAlertAt(r *metadata.Record)      { r.AlertAt = time.Time{} }
func noAutoUnlockAt(r *metadata.Record) { r.AutoUnlockAt = time.Time{} }
func noUUID(r *metadata.Record)         { r.UUID, r.Token = "", 0 }
func alertLast(r *metadata.Record)      { r.AlertAt = r.AutoUnlockAt.Add(time.Minute) }
func firstSeenLate(r *metadata.Record)  { r.Seen.First = 10 * time.Minute }

func judgement(state metadata.State, alert, unlock, next time.Time) Judgement {
	return Judgement{State: state, DueAlert: alert, ExpiresAt: unlock, Next: next}
}

func TestJudge(t *testing.T) {
	alert := start.Add(time.Minute)
	unlock := start.Add(2 * time.Minute)
	never := time.Time{}
	hour := start.Add(time.Hour)
	plain := DefaultPolicy()
	noDefaults := Policy{ClockSkew: 5 * time.Second, MinWarning: 30 * time.Second}
	unlocksMalformed := Policy{MinWarning: time.Second, DefaultAlertAfter: time.Hour,
		DefaultAutoUnlockAfter: 2 * time.Hour}

	for _, c := range []struct {
		name   string
		record *metadata.Record
		policy Policy
		now    time.Duration
		want   Judgement
	}{
		{"a fresh lock is held until alert_at", lock(), plain, 0, judgement(metadata.StateHeld, alert, unlock, alert)},
		{"one nanosecond before alert_at it is still held", lock(), plain, time.Minute - 1,
			judgement(metadata.StateHeld, alert, unlock, alert)},
		{"at alert_at it is alerting", lock(), plain, time.Minute,
			judgement(metadata.StateAlerting, alert, unlock, unlock)},
		{"one nanosecond before auto_unlock_at it is still alerting", lock(), plain, 2*time.Minute - 1,
			judgement(metadata.StateAlerting, alert, unlock, unlock)},
		{"at auto_unlock_at it is expired, without any skew", lock(), plain, 2 * time.Minute,
			judgement(metadata.StateExpired, alert, unlock, never)},
		{"expired stays expired", lock(), plain, 24 * time.Hour,
			judgement(metadata.StateExpired, alert, unlock, never)},
		{"an alert_at behind auto_unlock_at never makes it alerting", lock(alertLast), plain, 0,
			judgement(metadata.StateHeld, start.Add(3*time.Minute), unlock, unlock)},
		{"equal deadlines go from held to expired", lock(func(r *metadata.Record) { r.AlertAt = r.AutoUnlockAt }),
			plain, 0, judgement(metadata.StateHeld, unlock, unlock, unlock)},

		{"without alert_at it is malformed and the default policy alerts after an hour",
			lock(noAlertAt, noAutoUnlockAt), plain, 0, judgement(metadata.StateMalformed, hour, never, hour)},
		{"the default alert turns malformed into alerting", lock(noAlertAt, noAutoUnlockAt), plain, time.Hour,
			judgement(metadata.StateAlerting, hour, never, never)},
		{"the default alert counts from when the lock was first seen", lock(noAlertAt, noAutoUnlockAt, firstSeenLate),
			plain, time.Hour, judgement(metadata.StateMalformed, hour.Add(10*time.Minute), never,
				hour.Add(10*time.Minute))},
		{"without a default policy it is malformed forever", lock(noAlertAt, noAutoUnlockAt), noDefaults, time.Hour,
			judgement(metadata.StateMalformed, never, never, never)},
		{"a default deadline expires it", lock(noAlertAt, noAutoUnlockAt), unlocksMalformed, 2 * time.Hour,
			judgement(metadata.StateExpired, hour, start.Add(2*time.Hour), never)},
		{"without auto_unlock_at it is malformed even past alert_at", lock(noAutoUnlockAt), plain, 2 * time.Hour,
			judgement(metadata.StateMalformed, never, never, never)},
		{"without alert_at it is malformed until auto_unlock_at", lock(noAlertAt), plain, 0,
			judgement(metadata.StateMalformed, hour, unlock, unlock)},
		{"without alert_at it expires at its own auto_unlock_at", lock(noAlertAt), plain, 2 * time.Minute,
			judgement(metadata.StateExpired, hour, unlock, never)},
		{"without uuid it is malformed past alert_at", lock(noUUID), plain, time.Minute,
			judgement(metadata.StateMalformed, never, unlock, unlock)},
		{"without uuid it expires", lock(noUUID), plain, 2 * time.Minute,
			judgement(metadata.StateExpired, never, unlock, never)},
		{"other problems change nothing", lock(func(r *metadata.Record) {
			r.Problems = []metadata.Problem{{Field: "locked_at", Kind: metadata.ProblemBadTime}}
		}), plain, 0, judgement(metadata.StateHeld, alert, unlock, alert)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Judge(c.record, c.policy, at(c.now)); got != c.want {
				t.Errorf("after %v:\n got %+v\nwant %+v", c.now, got, c.want)
			}
		})
	}
}

func TestDefaultDeadlinesAreStable(t *testing.T) {
	r := lock(noAlertAt, noAutoUnlockAt)
	first := Judge(r, DefaultPolicy(), at(time.Minute+1))
	for i := range 1000 {
		now := at(time.Minute + time.Duration(i)*time.Millisecond)
		now.Wall = now.Wall.Add(-time.Duration(i) * time.Microsecond / 2) // the clocks are not read in the same instant
		if got := Judge(r, DefaultPolicy(), now); got.DueAlert != first.DueAlert {
			t.Fatalf("alert_at moved from %v to %v", first.DueAlert, got.DueAlert)
		}
	}
}

func TestWallClockJumpDoesNotMoveDefaultDeadlines(t *testing.T) {
	r := lock(noAlertAt, noAutoUnlockAt)
	jumped := Moment{Wall: start.Add(5 * time.Hour), Mono: 59 * time.Minute}
	if got := Judge(r, DefaultPolicy(), jumped); got.State != metadata.StateMalformed ||
		got.Next != start.Add(5*time.Hour+time.Minute) {
		t.Errorf("after a jump: %+v", got)
	}
}

// TestNextIsExact: the state stays the same from now until Next, and changes at Next. Deadlines are seconds apart.
func TestNextIsExact(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	changes := 0
	for range 5_000 {
		r := randomRecord(random)
		p := randomPolicy(random)
		now := time.Duration(random.IntN(400))*time.Second + time.Duration(random.IntN(3))*time.Millisecond
		v := Judge(r, p, at(now))
		until := 1000 * time.Second
		if !v.Next.IsZero() {
			until = v.Next.Sub(start)
			changes++
			if until <= now {
				t.Fatalf("Next %v is not after now %v\n%s", until, now, describe(r, p, v))
			}
			if then := Judge(r, p, at(until)); then.State == v.State {
				t.Fatalf("nothing changes at Next %v\n%s", until, describe(r, p, v))
			}
		}
		for moment := now; moment < until; moment += time.Second {
			if then := Judge(r, p, at(moment)); then.State != v.State {
				t.Fatalf("%s already at %v\n%s", then.State, moment, describe(r, p, v))
			}
		}
		if last := Judge(r, p, at(until-1)); last.State != v.State {
			t.Fatalf("%s already one nanosecond before Next %v\n%s", last.State, until, describe(r, p, v))
		}
	}
	if changes < 1000 {
		t.Errorf("only %d records had a Next", changes)
	}
}

func describe(r *metadata.Record, p Policy, v Judgement) string {
	return fmt.Sprintf("record %+v\npolicy %+v\njudgement %+v", *r, p, v)
}

func randomPolicy(random *rand.Rand) Policy {
	p := Policy{ClockSkew: time.Duration(random.IntN(10)) * time.Second,
		MinWarning: time.Duration(1+random.IntN(60)) * time.Second}
	if random.IntN(2) == 0 {
		p.DefaultAlertAfter = time.Duration(1+random.IntN(100)) * time.Second
	}
	if p.DefaultAlertAfter > 0 && random.IntN(2) == 0 {
		p.DefaultAutoUnlockAfter = p.DefaultAlertAfter + time.Duration(random.IntN(100))*time.Second
	}
	if random.IntN(2) == 0 {
		p.UnlockAbandoned = true
		p.AbandonedGrace = time.Duration(random.IntN(30)) * time.Second
	}
	return p
}

func randomRecord(random *rand.Rand) *metadata.Record {
	times := func() time.Time {
		if random.IntN(4) == 0 {
			return time.Time{}
		}
		return start.Add(time.Duration(random.IntN(600)-100) * time.Second)
	}
	r := lock()
	r.LockedAt = times()
	r.AlertAt = times()
	r.AutoUnlockAt = times()
	if random.IntN(8) == 0 {
		noUUID(r)
	}
	if random.IntN(3) == 0 {
		r.Alive = &metadata.Alive{At: times()}
	}
	r.Seen.First = time.Duration(random.IntN(100_000)) * time.Millisecond
	r.Seen.Changed = r.Seen.First + time.Duration(random.IntN(100))*time.Second
	if random.IntN(4) == 0 {
		dead(r.Seen.First + time.Duration(random.IntN(100))*time.Second)(r)
	}
	return r
}

func TestPolicyCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Policy)
		want   string // part of the sentence; empty = fine
	}{
		{"the default policy is fine", func(*Policy) {}, ""},
		{"no skew at all is fine", func(p *Policy) { p.ClockSkew = 0 }, ""},
		{"equal default deadlines are fine", func(p *Policy) { p.DefaultAutoUnlockAfter = p.DefaultAlertAfter }, ""},
		{"a negative skew is refused", func(p *Policy) { p.ClockSkew = -1 }, "the clock skew is negative"},
		{"a negative default alert is refused", func(p *Policy) { p.DefaultAlertAfter = -1 },
			"the default alert time is negative"},
		{"a negative default auto-unlock is refused", func(p *Policy) { p.DefaultAutoUnlockAfter = -1 },
			"the default auto-unlock time is negative"},
		{"no grace for the dead is fine", func(p *Policy) { p.AbandonedGrace = 0 }, ""},
		{"a negative grace is refused", func(p *Policy) { p.AbandonedGrace = -1 },
			"the grace of abandoned locks is negative"},
		{"no warning at all is refused", func(p *Policy) { p.MinWarning = 0 }, "minimum warning"},
		{"a default auto-unlock without an alert is refused",
			func(p *Policy) { p.DefaultAlertAfter, p.DefaultAutoUnlockAfter = 0, time.Hour }, "without an alert"},
		{"a default auto-unlock before its alert is refused",
			func(p *Policy) { p.DefaultAutoUnlockAfter = time.Minute }, "shorter than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := DefaultPolicy()
			c.change(&p)
			err := p.Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v: %v, want %q", p, err, c.want)
			}
		})
	}
}
