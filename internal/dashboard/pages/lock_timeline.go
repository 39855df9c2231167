package pages

import (
	"fmt"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// timeline is the life of a hold as a bar: a drawing for the eye, whose facts the page also says in words.
type timeline struct {
	Segments []segment
	Marks    []mark
}

// segment is a stretch of the bar; positions are percentages of its width, as SVG wants them.
type segment struct{ Class, From, Width string }

// mark is a point on the bar.
type mark struct {
	Class, At string
	Label     string
	Time      *phrase.Moment // nil for now
	when      time.Time
}

// newTimeline draws a hold. It needs a beginning and an end to have a scale; without them there is none.
func newTimeline(r *locks.Row, at phrase.Viewpoint) *timeline {
	start := r.LockedAt
	unlock := r.Verdict().AutoUnlockAt
	alert := r.Verdict().AlertAt
	if start.IsZero() {
		return nil
	}
	from := locks.Earlier(start, at.AsOf)
	to := at.AsOf
	for _, t := range []time.Time{alert, unlock} {
		if t.After(to) {
			to = t
		}
	}
	whole := to.Sub(from)
	if whole <= 0 {
		return nil
	}
	x := func(t time.Time) float64 { return 100 * float64(t.Sub(from)) / float64(whole) }
	percent := func(f float64) string { return fmt.Sprintf("%.2f%%", f) }
	tl := &timeline{}
	part := func(class string, a, b time.Time) {
		if a.Before(start) {
			a = start
		}
		if b.After(a) {
			tl.Segments = append(tl.Segments, segment{class, percent(x(a)), percent(x(b) - x(a))})
		}
	}
	// The future is drawn pale: it happens only if nobody moves the deadlines.
	alertUntil := locks.Earlier(to, unlock)
	calmUntil := locks.Earlier(alertUntil, alert)
	part("held", start, calmUntil)
	if !alert.IsZero() {
		part("alerting", alert, alertUntil)
	}
	if r.Verdict().State == staleness.Expired {
		part("expired", unlock, at.AsOf)
	}
	part("future", at.AsOf, to)
	add := func(class, label string, t time.Time, words *phrase.Moment) {
		if !t.IsZero() {
			tl.Marks = append(tl.Marks, mark{class, percent(x(t)), label, words, t})
		}
	}
	add("locked", "locked", start, at.Since(start))
	if r.Alive != nil && !r.Alive.At.IsZero() && r.Alive.At.After(from) && r.Alive.At.Before(to) {
		add("alive", "last alive", r.Alive.At, at.Since(r.Alive.At))
	}
	if !r.Verdict().AlertsAtUnlock() {
		add("alert", "alert", alert, at.Alert(alert))
	}
	ended := endOfHolder(r, from, to)
	add("ended", "holder ended", ended, at.Since(ended))
	add("unlock", "auto-unlock", unlock, at.Next(unlock))
	add("now", at.NowWord(), at.AsOf, nil)
	slices.SortStableFunc(tl.Marks, func(a, b mark) int { return a.when.Compare(b.when) })
	return tl
}

// endOfHolder is when the holder ended for certain, if that was between the two times; else zero.
func endOfHolder(r *locks.Row, from, to time.Time) (ended time.Time) {
	if r.Proven() {
		ended = protocol.EndedAt(r.Death)
	}
	if ended.After(from) && ended.Before(to) {
		return ended
	}
	return time.Time{}
}
