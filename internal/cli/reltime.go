package cli

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// none stands in a table for what is not known.
const none = "-"

// span writes a length of time as coarse as people read it: 42s, 12m, 3h 10m, 2d 4h.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Abs(); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd %dh", d/day, d%day/time.Hour)
}

// countdown is the time that is left: 1:42 below two minutes, rounded up, so that 0:00 is never early; else as span,
// rounded to the nearest unit, so that what was set to five minutes a moment ago does not read as four.
func countdown(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return span(d.Round(time.Hour))
	case d >= 2*time.Minute:
		return span(d.Round(time.Minute))
	}
	d = (d + time.Second - 1).Truncate(time.Second)
	return fmt.Sprintf("%d:%02d", d/time.Minute, d%time.Minute/time.Second)
}

// age is how long ago t was; an instant ahead of our clock is shown as such and not as an age.
func age(t, now time.Time) string {
	switch {
	case t.IsZero():
		return none
	case t.After(now.Add(time.Second)):
		return "in " + countdown(t.Sub(now))
	}
	return span(now.Sub(t))
}

// relative says when t is or was.
func relative(t, now time.Time) string {
	switch {
	case t.IsZero():
		return none
	case t.After(now):
		return "in " + countdown(t.Sub(now))
	}
	return span(now.Sub(t)) + " ago"
}

// alert says when people are alerted. An alert that comes only with the auto-unlock has no time of its own.
func alert(r *metadata.Record, now time.Time) string {
	v := judge(r, now)
	switch {
	case v.State != staleness.Held || !v.AlertsAtUnlock():
		return relative(r.AlertAt, now)
	case staleness.KeptAlive(r):
		return "if silent"
	}
	return "at unlock"
}

// clockWords says that the holder's clock is ahead of the one here; empty when that is not known. That it is behind
// does not show in records that are read once.
func clockWords(v staleness.Verdict) string {
	if v.ClockOff <= 0 {
		return ""
	}
	return span(v.ClockOff) + " ahead"
}

// instant writes t in full, with its distance.
func instant(t, now time.Time) string {
	return dated(t, relative(t, now))
}

// dated writes t in full, with a remark.
func dated(t time.Time, remark string) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC") + " (" + remark + ")"
}
