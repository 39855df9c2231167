package pages

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// bar draws a hold in a row: from when it was taken to its auto-unlock, filled up to now. The row says the same in
// words, and app.js moves the bar as it moves those.
type bar struct {
	Beats   bool      // it is kept alive by heartbeats
	Parts   []stretch // from left to right
	Now     string    // what comes after is pale
	Alert   string    // where its mark is; empty: nowhere
	Seconds int64     // the length of the bar, where it does not end at the auto-unlock
}

// stretch is a part of a bar, up to the next one: held since the last heartbeat (no class), for too long (l), or although
// it should have been removed (x).
type stretch struct{ Class, From string }

// newBar is nil where it is not known when the lock was taken.
func newBar(r *locks.Row, now time.Time) *bar {
	if r.LockedAt.IsZero() {
		return nil
	}
	judged := r.Verdict()
	age := now.Sub(r.LockedAt)
	whole := r.UnlockAt().Sub(r.LockedAt)
	b := &bar{}
	if r.UnlockAt().IsZero() { // nothing ends it, and so does the bar
		whole = max(age, judged.AlertAt.Sub(r.LockedAt)) * 5 / 4
	}
	if r.UnlockAt().IsZero() || age > whole {
		whole = max(whole, age)
		b.Seconds = int64(whole/time.Second) + 1
	}
	place := func(at time.Duration) string {
		return fmt.Sprintf("%.0f%%", 100*max(0, at.Seconds())/max(1, whole.Seconds()))
	}
	part := func(class string, at time.Duration) { b.Parts = append(b.Parts, stretch{class, place(at)}) }
	b.Now = place(age)
	if b.Beats = judged.AlertsAtUnlock() && staleness.KeptAlive(r.Record); b.Beats {
		part("", r.Alive.At.Sub(r.LockedAt))
	}
	if alert := judged.AlertAt; !alert.IsZero() && !judged.AlertsAtUnlock() {
		b.Alert = place(alert.Sub(r.LockedAt))
		part("l", alert.Sub(r.LockedAt))
	}
	if unlock := r.UnlockAt(); !unlock.IsZero() && now.After(unlock) {
		part("x", unlock.Sub(r.LockedAt))
	}
	return b
}
