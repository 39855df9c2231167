package staleness

import (
	"math"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Rule names a rule that holds back the removal of a lock.
type Rule string

// The rules that hold back the removal of a lock that is due; these are the values of the metric label reason.
const (
	RuleGap   Rule = "gap"   // MinWarning has not yet passed since the last gap
	RuleStale Rule = "stale" // the view of the locks is not fresh
	RuleEtcd  Rule = "etcd"  // etcd accepts no writes, so holders cannot extend either
	RuleClock Rule = "clock" // the wall clock disagrees with others
	// the wall clock is unverified, and this lock has not been watched long enough; others may be removed
	RuleUnverified Rule = "unverified"
	// etcd went back to an older revision, and an unlocker that saw the later one is running
	RuleRevision Rule = "revision"
	RuleBrake    Rule = "brake" // too many locks are due at once
)

// HeldBackRules returns the rules that can hold back a lock that is due and that the operator wants removed.
func HeldBackRules() []Rule {
	return []Rule{RuleGap, RuleStale, RuleEtcd, RuleClock, RuleUnverified, RuleRevision, RuleBrake}
}

// The other reasons not to remove a lock. With these, nothing is wrong.
const (
	// not due by its deadline, by how long its holder asked for, or by the grace of abandoned locks
	RuleDeadline  Rule = "deadline"
	RuleAlertOnly Rule = "policy"  // the operator wants alerts only
	RuleWarning   Rule = "warning" // not yet shown as alerting or expired for MinWarning
	RuleExclude   Rule = "exclude" // the operator excluded the lock by name
)

// ClockStatus is what is known about our own wall clock.
type ClockStatus string

// The values of a ClockStatus. The zero value counts as unverified.
const (
	ClockVerified   ClockStatus = "verified"   // it agrees with the other unlockers or the members of etcd
	ClockUnverified ClockStatus = "unverified" // there is nothing to compare it with
	ClockWrong      ClockStatus = "wrong"      // it disagrees with them
)

// Conditions are what an unlocker knows about itself when it decides. The zero value allows nothing.
type Conditions struct {
	// LastGap is the last moment, on the monotonic clock, at which the unlocker may have missed something: the start of
	// its process, a failed or late canary, a stale view, a new raft term, a clock jump.
	LastGap time.Duration
	// Writable reports whether a write of its own succeeded within seconds. A read would prove nothing: an etcd that is
	// out of space still serves reads.
	Writable      bool
	Fresh         bool // the view is complete, and etcd was heard from within seconds
	WallClock     ClockStatus
	NeverWentBack bool // etcd's revision never went back, as far as any running unlocker knows
	AlertOnly     bool // the operator wants no removals
	Excluded      func(lock string) bool
}

// Never is later than any moment of the monotonic clock.
const Never = time.Duration(math.MaxInt64)

// Decision is the answer of [Decide].
type Decision struct {
	HeldBack Rule // the rule that holds back the removal; empty = remove it now
	// At is the earliest moment on the monotonic clock at which the passing of time can allow the removal: the latest
	// that any rule requires, given what is now known about the wall clock. It ignores Writable, Fresh, NeverWentBack
	// and the operator's configuration, which do not change with time.
	At time.Duration
	// Proof reports whether the removal, now or at At, is allowed because the holder is proven to have ended. The
	// commit must then also check that the proof still stands.
	Proof bool
}

// Decide decides whether the lock may be removed: because its deadline has passed, or because its holder is proven to
// have ended and the operator wants such locks unlocked. With that proof, neither the deadline nor the warning nor the
// clocks matter: those rules protect a live holder that could not extend in time. The rules that guard against errors
// about the record or about etcd still apply. The last guard is not here: the transaction's compares must still hold
// when it commits.
func Decide(r *metadata.Record, p Policy, c Conditions, now Moment) Decision {
	d := deadlinesInEffect(r, p, now)
	overdue := decideByDeadline(r, d, p, c, now)
	if !d.proven || !p.UnlockAbandoned || overdue.HeldBack == "" {
		return overdue
	}
	from := addOrNever(r.Death.Seen, p.AbandonedGrace)
	switch {
	case from <= now.Mono:
		return Decision{HeldBack: c.forbiddenBy(r), At: from, Proof: true}
	case from < overdue.At:
		overdue.At = from
		overdue.Proof = true
	}
	return overdue
}

// forbiddenBy returns the rule that forbids any removal now; empty = none.
func (c Conditions) forbiddenBy(r *metadata.Record) Rule {
	switch {
	case c.AlertOnly:
		return RuleAlertOnly
	case c.Excluded != nil && c.Excluded(r.Name):
		return RuleExclude
	case !c.NeverWentBack:
		return RuleRevision
	case !c.Writable:
		return RuleEtcd
	case !c.Fresh:
		return RuleStale
	}
	return ""
}

func decideByDeadline(r *metadata.Record, d deadlines, p Policy, c Conditions, now Moment) Decision {
	due := max(addOrNever(now.mono(d.unlock), p.ClockSkew), grantedUntil(r))
	warned := addOrNever(max(now.mono(d.warning()), r.Seen.Changed), p.MinWarning)
	afterGap := addOrNever(c.LastGap, p.MinWarning)
	sane := safeFrom(r, d, c.WallClock)
	decision := Decision{At: max(due, warned, afterGap, sane)}
	switch forbidden := c.forbiddenBy(r); {
	case due > now.Mono:
		decision.HeldBack = RuleDeadline
	case forbidden != "":
		decision.HeldBack = forbidden
	case c.WallClock == ClockWrong:
		decision.HeldBack = RuleClock
	case afterGap > now.Mono:
		decision.HeldBack = RuleGap
	case warned > now.Mono:
		decision.HeldBack = RuleWarning
	case sane > now.Mono:
		decision.HeldBack = RuleUnverified
	}
	return decision
}

// safeFrom returns the moment from which our wall clock, even if wrong, cannot make the removal early. With an
// unverified clock, that is when the record has not been extended for its whole time to live on our monotonic clock: a
// healthy holder would have extended it. A clock known to be wrong cannot be waited out.
func safeFrom(r *metadata.Record, d deadlines, clock ClockStatus) time.Duration {
	switch {
	case clock == ClockVerified:
		return math.MinInt64
	case clock == ClockWrong:
		return Never
	case d.unlockByPolicy:
		return math.MinInt64 // counted on the monotonic clock anyway
	}
	ttl, ok := timeToLive(r)
	if !ok {
		return Never
	}
	if r.MoreTime != nil && r.Seen.Arrived != 0 {
		return grantedUntil(r) // the last change may be an operator's, which did not restart the time to live
	}
	return addOrNever(r.Seen.Changed, ttl)
}

// timeToLive returns how long the holder asked for when it last wrote its deadline, by its own clock.
func timeToLive(r *metadata.Record) (time.Duration, bool) {
	written := r.DeadlinesWrittenAt()
	if written.IsZero() {
		return 0, false
	}
	return r.AutoUnlockAt.Sub(written), true
}

// grantedUntil returns until when the holder has the lock by our monotonic clock, whatever its own clock shows: its
// time to live, including what an operator has added since, counted from when a watch saw its write arrive. If no watch
// did, it returns the earliest moment.
func grantedUntil(r *metadata.Record) time.Duration {
	ttl, ok := timeToLive(r)
	if !ok || r.Seen.Arrived == 0 {
		return math.MinInt64
	}
	return addOrNever(r.Seen.Arrived, ttl)
}

// mono returns the moment on the monotonic clock at which the wall clock shows t, if it does not jump.
func (m Moment) mono(t time.Time) time.Duration {
	if t.IsZero() {
		return Never
	}
	return addOrNever(m.Mono, t.Sub(m.Wall))
}

// addOrNever returns a+b, or Never if that overflows: times of records range from 1970 to 2286, more than a Duration
// holds. It cannot overflow downwards, because no moment of the monotonic clock is negative.
func addOrNever(a, b time.Duration) time.Duration {
	if sum := a + b; a < 0 || b < 0 || sum >= 0 {
		return sum
	}
	return Never
}
