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
	Open    bool      // nothing ends it
	Beats   bool      // it is kept alive by heartbeats
	Parts   []stretch // from left to right
	Now     string    // what comes after is pale
	Alert   string    // where its mark is; empty: nowhere
	Seconds int64     // the length of the bar, where it does not end at the auto-unlock
}

// stretch is a part of a bar, up to the next one: held since the last heartbeat (no class), for too long (l), or when
// it should have been removed (x).
type stretch struct{ Class, From string }

// newBar is nil where it is not known when the lock was taken.
func newBar(r *locks.Row, now time.Time) *bar {
	if r.LockedAt.IsZero() {
		return nil
	}
	judged := r.Verdict()
	seconds := func(at time.Time) float64 { return max(0, at.Sub(r.LockedAt).Seconds()) }
	age, alert := seconds(now), seconds(judged.AlertAt)
	unlock := seconds(r.UnlockAt())
	whole := unlock
	b := &bar{Open: r.UnlockAt().IsZero()}
	if b.Open {
		whole = max(age, alert) * 1.25
	}
	if b.Open || age > whole {
		whole = max(age, whole)
		b.Seconds = int64(whole) + 1
	}
	place := func(at float64) string { return fmt.Sprintf("%.0f%%", 100*at/max(1, whole)) }
	part := func(class string, at float64) { b.Parts = append(b.Parts, stretch{class, place(at)}) }
	b.Now = place(age)
	if b.Beats = judged.AlertsAtUnlock() && staleness.KeptAlive(r.Record); b.Beats {
		part("", seconds(r.Alive.At))
	}
	if !judged.AlertAt.IsZero() && !judged.AlertsAtUnlock() {
		b.Alert = place(alert)
		part("l", alert)
	}
	if !b.Open && age > unlock {
		part("x", unlock)
	}
	return b
}
