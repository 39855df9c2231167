package staleness

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// How near its auto-unlock a lock is expiring: a part of its term, and never longer than this.
const (
	expiringShare = 5
	expiringMost  = 2 * time.Minute
)

// ExpiringAt is the wall time from which the lock, which is [Held], is about to be auto-unlocked without an alert
// before: in the last fifth of its term, and two minutes before the end at most. The term begins with the last sign of
// life, so that a holder which extends in time never gets there. Zero = never, as in every other state: an alert says
// more.
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

// AlertsAtUnlock reports whether the alert has no time of its own, because it comes with the auto-unlock: people hear
// of the lock only if its holder falls silent, as one with a heartbeat, or if a reservation runs out.
func (v Verdict) AlertsAtUnlock() bool {
	return !v.AlertAt.IsZero() && !v.AutoUnlockAt.IsZero() && !v.AlertAt.Before(v.AutoUnlockAt)
}

// KeptAlive reports whether a program extends the lock by itself, as far as the record tells: its holder has said that
// it is alive, and the lock is no reservation, which only a person extends.
func KeptAlive(r *metadata.Record) bool {
	_, reserved := r.Attributes["reserved"]
	return r.Alive != nil && !reserved
}
