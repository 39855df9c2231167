package cli

import (
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// age is how long ago t was.
func age(t, now time.Time) string { return orNone(text.Age(t, now)) }

// relative says when t is or was.
func relative(t, now time.Time) string { return orNone(text.Relative(t, now)) }

// alert is when the lock alerts. An alert that comes only with the auto-unlock has no time of its own.
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

// clockWords is how far the holder's clock is ahead of the one here; empty when that is not known. A clock that is
// behind does not show in a record that is read once.
func clockWords(v staleness.Verdict) string {
	if v.ClockOff <= 0 {
		return ""
	}
	return text.Duration(v.ClockOff) + " ahead"
}

// instant writes t in full, with its distance.
func instant(t, now time.Time) string {
	return dated(t, relative(t, now))
}

// dated writes t in full, with a remark.
func dated(t time.Time, remark string) string {
	if t.IsZero() {
		return term.None
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC") + " (" + remark + ")"
}
