package pages

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// holdView is how far a hold is: as a bar, and in words.
type holdView struct {
	Bar    *bar           // nil where there is none
	Held   *phrase.Moment // nil: unknown
	Alert  *phrase.Moment // nil: never
	Late   bool           // the alert is past
	Unlock *phrase.Moment // nil: never
}

func newHoldView(r *locks.Row, at phrase.Viewpoint) holdView {
	alert := r.Verdict().AlertAt
	return holdView{Bar: newBar(r, at.AsOf), Held: at.Lasting(r.LockedAt), Alert: at.AlertOf(r.Record, r.Verdict()),
		Late:   r.Display != locks.Held && !alert.IsZero() && !alert.After(at.AsOf),
		Unlock: at.Unlock(r.UnlockAt())}
}

// bar draws a hold: from when it was taken to its auto-unlock, filled up to now. app.js moves it as it
// moves the words.
type bar struct {
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
	b := &bar{}
	open := r.UnlockAt().IsZero()
	if open {
		whole = max(age, alert) * 1.25
	}
	if open || age > whole {
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
	if !open && age > unlock {
		part("x", unlock)
	}
	return b
}
