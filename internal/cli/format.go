package cli

import (
	"fmt"
	"strconv"
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

// alert is when people are alerted. An alert that comes only with the auto-unlock has no time of its own.
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

func shortText(s string) string {
	if s == "" {
		return term.None
	}
	return term.Clip(text.Visible(s), textColumns)
}

func orNone(s string) string {
	if s == "" {
		return term.None
	}
	return s
}

func hostPID(r *metadata.Record) string {
	host := shortText(r.Hostname)
	if r.PID != 0 {
		host += ":" + strconv.FormatInt(r.PID, 10)
	}
	return host
}

func who(r *metadata.Record) string {
	text := shortText(r.Owner) + " on " + hostPID(r)
	if words := shareWords(metadata.ShareOf(r.Name, r.Attributes)); words != "" {
		text += " as " + words
	}
	return text
}

// holder is one line about who holds a lock.
func (s *session) holder(r *metadata.Record) string {
	now := s.app.Now()
	line := fmt.Sprintf("%s on %s", shortText(r.Owner), hostPID(r))
	if words := shareWords(metadata.ShareOf(r.Name, r.Attributes)); words != "" {
		line += " as " + words
	}
	if !r.LockedAt.IsZero() {
		line += " for " + age(r.LockedAt, now)
	}
	if r.Purpose != "" {
		line += " (" + shortText(r.Purpose) + ")"
	}
	return line + ", uuid " + shortText(r.UUID)
}

// shareWords is what a holder has of a lock that several can hold: "2 of 5 permits", "reader", "exclusive"; empty for
// an ordinary lock.
func shareWords(s metadata.Share) string {
	switch {
	case s.Kind == metadata.HoldsPermits && s.Limit > 0:
		return fmt.Sprintf("%d of %s", s.Permits, count(s.Limit, "permit"))
	case s.Kind == metadata.HoldsPermits:
		return count(s.Permits, "permit")
	case s.Kind == metadata.HoldsShared:
		return "reader"
	}
	return s.Kind
}

func stateColour(s staleness.State) term.Colour {
	switch s {
	case staleness.Alerting:
		return term.Yellow
	case staleness.Expired, staleness.Malformed:
		return term.Red
	}
	return term.NoColour
}

// count is "1 lock" or "2 locks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func endingSentence(e *metadata.Ending) string {
	words := map[string]string{
		metadata.EndedReleased: "released", metadata.EndedAutoUnlocked: "auto-unlocked",
		metadata.EndedForced: "force-unlocked",
	}[e.Ended]
	if words == "" {
		words = "ended (" + text.Visible(e.Ended) + ")"
	}
	if e.By != "" {
		words += " by " + text.Visible(e.By)
	}
	if e.Why != "" {
		words += " (" + text.Prose(e.Why) + ")"
	}
	return words
}

// orZero is the value, or the zero value where it is not known.
func orZero[T any](v *T) T {
	if v == nil {
		return *new(T)
	}
	return *v
}

// textColumns is the most that owner, host and purpose take in a table. Names may take more: people copy them.
const textColumns = 40
