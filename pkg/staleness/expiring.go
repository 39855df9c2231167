package staleness

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// How long before its auto-unlock a lock counts as expiring: a fraction of its time to live, up to a maximum.
const (
	expiringShare = 5
	maxExpiring   = 2 * time.Minute
)

// ExpiringAt returns the wall time from which the lock, if it is [Held], is about to be auto-unlocked without an
// earlier alert: the last fifth of its time to live, at most two minutes. That begins with the last sign of life, so a
// holder that extends in time never gets there. Zero = never, as in every other state: an alert is more important.
func (v Verdict) ExpiringAt(r *metadata.Record) time.Time {
	if v.State != Held || v.AutoUnlockAt.IsZero() {
		return time.Time{}
	}
	near := maxExpiring
	if written := r.DeadlinesWrittenAt(); !written.IsZero() {
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
