// Package staleness judges lock records: which state a lock is in, and whether an unlocker may remove it.
//
// [Judge] returns the state. Metrics, alerts, pages, command line and sweep all use it, so they cannot disagree.
// [Decide] decides about the removal: it is allowed, or a rule holds it back until, at the earliest, a given moment.
//
// The rules, what they promise and the bounds are in docs/time.md. Removing late is better than removing early.
//
// The package is pure: no clock, no I/O, no etcd. Time is a parameter and has two clocks: the wall clock, because
// another machine wrote the deadlines of a record, and this process's monotonic clock, because a wall clock may jump.
//
// Its API is for our own programs and may change in any version.
package staleness

import (
	"math"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// States returns the states that [Judge] returns, in the order in which they are listed.
func States() []metadata.State {
	return []metadata.State{metadata.StateHeld, metadata.StateAlerting, metadata.StateAbandoned,
		metadata.StateExpired, metadata.StateMalformed}
}

// Moment is one instant on two clocks, read together.
type Moment struct {
	Wall time.Time
	Mono time.Duration // on the clock of [metadata.Seen]
}

// Judgement is the result of [Judge]: the state of a lock, and its deadlines in effect.
type Judgement struct {
	State metadata.State
	// DueAlert and ExpiresAt are the deadlines in effect, in UTC: alert_at and auto_unlock_at of the record, or the
	// default policy's if the record has no readable ones. Zero = never. The alert_at of a malformed record has no
	// effect.
	DueAlert, ExpiresAt time.Time
	// Next is the wall time at which the state changes unless the record changes; zero = never.
	Next time.Time
	// AbandonedAt is when this process first saw the proof that the holder has ended; zero = there is none.
	AbandonedAt time.Time
	// RemoveAt is when unlockers with the same policy remove the lock because of that proof, whatever its deadlines;
	// zero = not because of it.
	RemoveAt time.Time
	// ClockOff is how far the holder's clock is ahead of ours; negative = behind. It is 0 if the two agree within
	// [Policy.HolderTolerance], or if unknown. It is a lower bound if the holder is ahead and no watch saw its write
	// arrive. The deadlines in effect are corrected by it if that makes the alert earlier or the auto-unlock later.
	ClockOff time.Duration
}

// Judge returns the state of the lock. Alerting needs neither a grace period nor a verified clock: a false alert is
// better than none.
func Judge(r *metadata.Record, p Policy, now Moment) Judgement {
	d := deadlinesInEffect(r, p, now)
	v := Judgement{State: d.state(now.Wall), DueAlert: d.alert, ExpiresAt: d.unlock, ClockOff: d.clockOff}
	if d.proven {
		v.AbandonedAt = roundUpToSecond(now.Wall.Add(r.Death.Seen - now.Mono))
		if p.UnlockAbandoned {
			v.RemoveAt = v.AbandonedAt.Add(p.AbandonedGrace)
		}
	}
	for _, t := range [...]time.Time{d.alert, d.unlock} {
		if t.After(now.Wall) && d.state(t) != v.State && (v.Next.IsZero() || t.Before(v.Next)) {
			v.Next = t
		}
	}
	return v
}

// DueUnlock returns when unlockers remove the lock if nothing changes: at its deadline, or earlier because its holder
// has ended; zero = never.
func (v Judgement) DueUnlock() time.Time {
	if v.RemoveAt.IsZero() || !v.ExpiresAt.IsZero() && v.ExpiresAt.Before(v.RemoveAt) {
		return v.ExpiresAt
	}
	return v.RemoveAt
}

type deadlines struct {
	alert, unlock   time.Time // zero = never
	unlockByPolicy  bool      // unlock is the default policy's
	recordMalformed bool
	proven          bool          // the holder has ended
	clockOff        time.Duration // how far the holder's clock is ahead
}

func deadlinesInEffect(r *metadata.Record, p Policy, now Moment) deadlines {
	if r.Misplaced { // no unlocker can act on its deadlines
		return deadlines{recordMalformed: true}
	}
	d := deadlines{alert: r.AlertAt, unlock: r.AutoUnlockAt, recordMalformed: r.Malformed(), proven: r.ProvenDead(),
		clockOff: clockOff(r, p, now)}
	switch {
	case d.clockOff > 0 && !d.alert.IsZero():
		d.alert = roundUpToSecond(d.alert.Add(-d.clockOff))
	case d.clockOff < 0:
		d.unlock = roundUpToSecond(d.unlock.Add(-d.clockOff))
	}
	switch {
	case d.alert.IsZero() && p.DefaultAlertAfter > 0:
		d.alert = sinceFirstSeen(r, p.DefaultAlertAfter, now)
	case d.recordMalformed: // it has an alert of its own already
		d.alert = time.Time{}
	}
	if d.unlock.IsZero() && p.DefaultAutoUnlockAfter > 0 {
		d.unlock = sinceFirstSeen(r, p.DefaultAutoUnlockAfter, now)
		d.unlockByPolicy = true
	}
	return d
}

// sinceFirstSeen returns the wall time of a moment on the monotonic clock. It is rounded up to whole seconds, so that
// two calls, whose clocks were not read in the same nanosecond, show the same time.
func sinceFirstSeen(r *metadata.Record, after time.Duration, now Moment) time.Time {
	return roundUpToSecond(now.Wall.Add(addOrNever(r.Seen.First-now.Mono, after)))
}

func roundUpToSecond(t time.Time) time.Time {
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}

func (d deadlines) state(wall time.Time) metadata.State {
	switch {
	case passed(d.unlock, wall):
		return metadata.StateExpired
	case d.recordMalformed && !passed(d.alert, wall):
		return metadata.StateMalformed
	case d.proven:
		return metadata.StateAbandoned
	case passed(d.alert, wall):
		return metadata.StateAlerting
	}
	return metadata.StateHeld
}

// warning returns the wall time from which the lock is alerting or expired; zero = never.
func (d deadlines) warning() time.Time {
	if d.alert.IsZero() || !d.unlock.IsZero() && d.unlock.Before(d.alert) {
		return d.unlock
	}
	return d.alert
}

func passed(deadline, wall time.Time) bool { return !deadline.IsZero() && !wall.Before(deadline) }

// maxRemovalTime is how long a removal that nothing holds back may take: the wait for the next scan, and the commit in
// etcd.
const maxRemovalTime = 5 * time.Second

// OverdueAt is RemovedBy for a lock whose state allows its removal, overdue from then on; zero in other states.
func (v Judgement) OverdueAt(p Policy) time.Time {
	if v.State == metadata.StateExpired || v.State == metadata.StateAbandoned && !v.RemoveAt.IsZero() {
		return v.RemovedBy(p)
	}
	return time.Time{}
}

// RemovedBy returns the wall time by which unlockers with this policy will have removed the lock, unless its record
// changes or a rule holds the removal back. Zero = they do not remove it.
func (v Judgement) RemovedBy(p Policy) time.Time {
	switch {
	case v.State == metadata.StateAbandoned && !v.RemoveAt.IsZero():
		return v.RemoveAt.Add(maxRemovalTime)
	case v.ExpiresAt.IsZero():
		return time.Time{}
	}
	return v.ExpiresAt.Add(p.ClockSkew + p.MinWarning + maxRemovalTime)
}

// minHolderTolerance is longer than a write takes to reach us if nothing is wrong: the attempts of a client, plus how
// late a watch may be before it counts as dead.
const minHolderTolerance = 30 * time.Second

// HolderTolerance returns how far a holder's clock may differ from ours before it counts as off.
func (p Policy) HolderTolerance() time.Duration { return max(p.ClockSkew, minHolderTolerance) }

// clockOff returns how far the holder's clock is ahead of ours, or 0 if that is within the tolerance. The holder counts
// as behind only if a watch saw the write arrive and the write cannot have been delayed by an unavailable etcd. It
// counts as ahead in any case: no time can be read before it is written.
func clockOff(r *metadata.Record, p Policy, now Moment) time.Duration {
	ahead := clockAhead(r, now)
	if ahead.Abs() <= p.HolderTolerance() {
		return 0
	}
	// rounded to a stable value, because the two clocks are never read at the same instant
	rounded := ahead.Round(100 * time.Millisecond)
	seen := r.Seen.Arrived
	switch behind := -ahead; {
	case ahead > 0:
		return rounded
	case seen != 0 && (seen-behind >= r.Seen.Followed || behind >= r.AutoUnlockAt.Sub(r.DeadlinesWrittenAt())):
		return rounded
	}
	return 0
}

// clockAhead returns by how much the holder's time of writing the record is after our time of its arrival; negative =
// before; 0 if either is unknown.
func clockAhead(r *metadata.Record, now Moment) time.Duration {
	written := r.DeadlinesWrittenAt()
	seen := r.Seen.Changed
	if r.Seen.Arrived != 0 {
		seen = r.Seen.Arrived
	}
	if written.IsZero() || seen < 0 {
		return 0
	}
	return max(-math.MaxInt64, written.Sub(now.Wall.Add(seen-now.Mono)))
}

// How long before its auto-unlock a lock counts as expiring: a fraction of its time to live, up to a maximum.
const (
	expiringShare = 5
	maxExpiring   = 2 * time.Minute
)

// ExpiringAt returns the wall time from which the lock, if it is held, is about to be auto-unlocked without an earlier
// alert: the last fifth of its time to live, at most two minutes. That begins with the last sign of life, so a holder
// that extends in time never gets there. Zero = never, as in every other state: an alert is more important.
func (v Judgement) ExpiringAt(r *metadata.Record) time.Time {
	if v.State != metadata.StateHeld || v.ExpiresAt.IsZero() {
		return time.Time{}
	}
	near := maxExpiring
	if written := r.DeadlinesWrittenAt(); !written.IsZero() {
		near = max(0, min(near, v.ExpiresAt.Sub(written)/expiringShare))
	}
	at := v.ExpiresAt.Add(-near)
	if passed(v.DueAlert, at) {
		return time.Time{}
	}
	return at
}

// AlertsAtUnlock reports whether the alert has no time of its own because it coincides with the auto-unlock: it then
// comes only if the holder falls silent, as with a heartbeat, or if a reservation runs out.
func (v Judgement) AlertsAtUnlock() bool {
	return !v.DueAlert.IsZero() && !v.ExpiresAt.IsZero() && !v.DueAlert.Before(v.ExpiresAt)
}

// KeptAlive reports whether a program extends the lock, as far as the record shows: its holder has called alive, and
// the lock is not a reservation, which only operators extend.
func KeptAlive(r *metadata.Record) bool {
	_, reserved := r.Attributes["reserved"]
	return r.Alive != nil && !reserved
}
