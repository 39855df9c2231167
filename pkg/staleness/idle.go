package staleness

import (
	"iter"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Survey selects, among many locks, those that are due soon. A caller that judges all locks every few seconds need not
// look at the others.
type Survey struct {
	DueSoon iter.Seq[*metadata.Record]
	Idle    int       // how many locks are left out; all of them are [Held]
	Oldest  time.Time // the earliest LockedAt of all locks; zero if none says
}

const (
	// IdleAhead is how long before its auto-unlock a lock is no longer idle.
	IdleAhead = 2 * time.Minute
	// IdleTolerance is how far the wall clock may move against the monotonic one before a result of [IdleUntil] becomes
	// invalid.
	IdleTolerance = time.Second
)

// IdleUntil returns until when, on the monotonic clock, the lock is idle; 0 if it is not. Until then, unless its record
// changes, [Judge] returns only that it is held: there are no statements and no acknowledgement, the holder's clock is
// not off, and the auto-unlock is more than [IdleAhead] away.
func IdleUntil(r *metadata.Record, p Policy, now Moment) time.Duration {
	if r.Death != nil || r.Suspicion != nil || r.Acknowledged != nil {
		return 0
	}
	until := Never
	for _, off := range [...]time.Duration{-IdleTolerance, IdleTolerance} {
		moment := Moment{Wall: now.Wall.Add(off), Mono: now.Mono}
		d := inEffect(r, p, moment)
		if d.state(moment.Wall) != Held || mayBeOff(r, p, moment) {
			return 0
		}
		until = min(until, moment.mono(d.alert), moment.mono(d.unlock)-IdleAhead)
	}
	until -= time.Second // deadlines of the default policy are rounded to seconds
	if until <= now.Mono {
		return 0
	}
	return until
}

// mayBeOff reports whether the holder's clock is off, or may be once the wall clock has moved a little.
func mayBeOff(r *metadata.Record, p Policy, now Moment) bool {
	ahead := aheadOf(r, now)
	watched := r.Seen.Arrived != 0
	return ahead > p.HolderTolerance() || watched && -ahead > p.HolderTolerance()
}

// How long before its auto-unlock a lock counts as expiring: a fraction of its term, up to a maximum.
const (
	expiringShare = 5
	expiringMost  = 2 * time.Minute
)

// ExpiringAt returns the wall time from which the lock, if it is [Held], is about to be auto-unlocked without an
// earlier alert: the last fifth of its term, at most two minutes. The term begins with the last sign of life, so a
// holder that extends in time never gets there. Zero = never, as in every other state: an alert is more important.
func (v Verdict) ExpiringAt(r *metadata.Record) time.Time {
	if v.State != Held || v.AutoUnlockAt.IsZero() {
		return time.Time{}
	}
	near := expiringMost
	if written := r.Written(); !written.IsZero() {
		near = max(0, min(near, v.AutoUnlockAt.Sub(written)/expiringShare))
	}
	at := v.AutoUnlockAt.Add(-near)
	if passed(v.AlertAt, at) {
		return time.Time{}
	}
	return at
}

// AlertsAtUnlock reports whether the alert has no time of its own because it coincides with the auto-unlock: it then
// comes only if the holder falls silent, as with a heartbeat, or if a reservation runs out.
func (v Verdict) AlertsAtUnlock() bool {
	return !v.AlertAt.IsZero() && !v.AutoUnlockAt.IsZero() && !v.AlertAt.Before(v.AutoUnlockAt)
}

// KeptAlive reports whether a program extends the lock, as far as the record shows: its holder has called alive, and
// the lock is not a reservation, which only operators extend.
func KeptAlive(r *metadata.Record) bool {
	_, reserved := r.Attributes["reserved"]
	return r.Alive != nil && !reserved
}
