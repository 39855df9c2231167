package staleness

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// State is the state of a held lock: [metadata.States] says what each means.
type State = metadata.State

// The states that [Judge] returns.
const (
	Held      = metadata.StateHeld
	Abandoned = metadata.StateAbandoned // a witness has proof that the holder has ended
	Alerting  = metadata.StateAlerting  // past alert_at
	Expired   = metadata.StateExpired   // past auto_unlock_at: to be removed, or to be proven safe to remove
	Malformed = metadata.StateMalformed // no uuid or readable deadline, and no default policy took effect yet
)

// States returns the states that [Judge] returns, in the order in which they are listed.
func States() []State { return []State{Held, Alerting, Abandoned, Expired, Malformed} }

// Moment is one instant on two clocks, read together.
type Moment struct {
	Wall time.Time
	Mono time.Duration // on the clock of [metadata.Seen]
}

// Verdict is the judgement of one lock.
type Verdict struct {
	State State
	// AlertAt and AutoUnlockAt are the deadlines in effect, in UTC: the record's, or the default policy's if the record
	// has none that can be read. Zero = never.
	AlertAt, AutoUnlockAt time.Time
	// Next is the wall time at which the state changes unless the record does; zero = never.
	Next time.Time
	// AbandonedAt is when this process first saw the proof that the holder has ended; zero = there is none.
	AbandonedAt time.Time
	// RemoveAt is when unlockers with the same policy remove the lock because of that proof, whatever its deadlines;
	// zero = not because of it.
	RemoveAt time.Time
	// ClockOff is how far the holder's clock is ahead of ours; negative = behind. It is 0 if the two agree within
	// [Policy.HolderTolerance], or if nothing is known. If a holder is ahead and its write was not watched arriving, it
	// is a lower bound. The deadlines in effect are corrected by it if that makes the alert earlier or the auto-unlock
	// later.
	ClockOff time.Duration
}

// Judge returns the state of the lock. The alert needs no grace period and no proof of a correct clock: better a false
// alert than none.
func Judge(r *metadata.Record, p Policy, now Moment) Verdict {
	d := inEffect(r, p, now)
	v := Verdict{State: d.state(now.Wall), AlertAt: d.alert, AutoUnlockAt: d.unlock, ClockOff: d.clockOff}
	if d.proven {
		v.AbandonedAt = upToSeconds(now.Wall.Add(r.Death.Seen - now.Mono))
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

// deadlines are the deadlines in effect of one record.
type deadlines struct {
	alert, unlock   time.Time // zero = never
	alertByPolicy   bool      // alert is the default policy's
	unlockByPolicy  bool      // unlock is the default policy's
	recordMalformed bool
	proven          bool          // the holder has ended
	clockOff        time.Duration // how far the holder's clock is ahead
}

func inEffect(r *metadata.Record, p Policy, now Moment) deadlines {
	if r.Misplaced { // no unlocker could act on its deadlines
		return deadlines{recordMalformed: true}
	}
	d := deadlines{alert: r.AlertAt, unlock: r.AutoUnlockAt, recordMalformed: r.Malformed(), proven: r.Proven(),
		clockOff: clockOff(r, p, now)}
	switch {
	case d.clockOff > 0 && !d.alert.IsZero():
		d.alert = upToSeconds(d.alert.Add(-d.clockOff))
	case d.clockOff < 0:
		d.unlock = upToSeconds(d.unlock.Add(-d.clockOff))
	}
	if d.alert.IsZero() && p.DefaultAlertAfter > 0 {
		d.alert = sinceFirstSeen(r, p.DefaultAlertAfter, now)
		d.alertByPolicy = true
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
	return upToSeconds(now.Wall.Add(add(r.Seen.First-now.Mono, after)))
}

func upToSeconds(t time.Time) time.Time { return t.UTC().Add(time.Second - 1).Truncate(time.Second) }

func (d deadlines) state(wall time.Time) State {
	switch {
	case passed(d.unlock, wall):
		return Expired
	case d.recordMalformed && !(d.alertByPolicy && passed(d.alert, wall)):
		return Malformed
	case d.proven:
		return Abandoned
	case passed(d.alert, wall):
		return Alerting
	}
	return Held
}

// warning returns the wall time from which the lock is alerting or expired; zero = never.
func (d deadlines) warning() time.Time {
	malformedUntilExpired := d.recordMalformed && !d.alertByPolicy
	if malformedUntilExpired || !d.unlock.IsZero() && d.unlock.Before(d.alert) {
		return d.unlock
	}
	return d.alert
}

func passed(deadline, wall time.Time) bool { return !deadline.IsZero() && !wall.Before(deadline) }
