package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// age returns how long ago t was, or a dash.
func age(t, now time.Time) string { return orNone(text.Age(t, now)) }

// relative returns t relative to now, or a dash: "in 5m", "3s ago".
func relative(t, now time.Time) string { return orNone(text.Relative(t, now)) }

// alertText returns when the lock alerts. An alert that comes only with the auto-unlock has no time of its own.
func alertText(r *metadata.Record, v staleness.Judgement, now time.Time) string {
	switch {
	case v.State != metadata.StateHeld || !v.AlertsAtUnlock():
		return relative(v.DueAlert, now)
	case staleness.KeptAlive(r):
		return "if silent"
	}
	return "at unlock"
}

// clockAhead returns how far the holder's clock is ahead of ours; empty if that is unknown. A record that is read once
// does not show that a clock is behind.
func clockAhead(v staleness.Judgement) string {
	if v.ClockOff <= 0 {
		return ""
	}
	return text.Duration(v.ClockOff) + " ahead"
}

func timeText(t, now time.Time) string {
	return timeWithRemark(t, relative(t, now))
}

func timeWithRemark(t time.Time, remark string) string {
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

func orNone(s string) string { return cmp.Or(s, term.None) }

// fullText returns visible text, or a dash, for tables that Fit cuts.
func fullText(s string) string { return orNone(text.Visible(s)) }

// holderText names the holder: "backup on db-1:4711 as reader".
func holderText(r *metadata.Record) string {
	return identityText(&r.Identity, r.Share())
}

func identityText(h *metadata.Identity, s metadata.Share) string {
	name := shortText(cmp.Or(h.Owner, "an unknown owner"))
	if h.Hostname != "" {
		name += " on " + locks.HostPID(shortText(h.Hostname), h.PID)
	}
	if share := protocol.DescribeShare(s); share != "" {
		name += " as " + share
	}
	return name
}

func (s *session) describeHolder(r *metadata.Record) string {
	now := s.app.Now()
	line := holderText(r)
	if !r.LockedAt.IsZero() {
		line += " for " + age(r.LockedAt, now)
	}
	if r.Purpose != "" {
		line += " (" + shortText(r.Purpose) + ")"
	}
	if r.ProvenDead() {
		line += ", whose end is proven: " + protocol.DescribeStatement(r.Death, now)
	}
	return line + ", uuid " + shortText(r.UUID)
}

func stateColour(s metadata.State) term.Colour {
	switch s {
	case metadata.StateAlerting, metadata.StateExpiring:
		return term.Yellow
	case metadata.StateAbandoned, metadata.StateExpired, metadata.StateMalformed,
		metadata.State(locks.ClassDeadlock.String()):
		return term.Red
	}
	return term.NoColour
}

func endingSentence(e *metadata.Ending) string {
	words, known := metadata.EndingWordsFor(e.Cause)
	sentence := words.Verb
	if !known {
		sentence = "ended (" + text.Visible(e.Cause) + ")"
	}
	if e.By != "" {
		sentence += " by " + text.Visible(e.By)
	}
	if e.Reason != "" {
		sentence += " (" + text.Prose(e.Reason) + ")"
	}
	return sentence
}

// textColumns is the maximum width of owner, host and purpose in a table. Lock names may be wider, because people copy
// them.
const textColumns = 40

// acknowledgedText returns who has acknowledged the hold in r, and for how much longer; empty if nobody has.
func acknowledgedText(r *metadata.Record, now time.Time) string {
	a := r.ValidAcknowledgement(now)
	if a == nil {
		return ""
	}
	return shortText(a.By) + ", " + text.Countdown(a.Until.Sub(now)) + " left"
}

// writeLines writes the JSON of each element, one per line.
func writeLines[T, JSON any](w io.Writer, all []T, describe func(T) JSON) error {
	for _, v := range all {
		if err := writeJSON(w, describe(v)); err != nil {
			return err
		}
	}
	return nil
}

func writeNames[T any](w io.Writer, all []T, name func(T) string) error {
	for _, v := range all {
		if _, err := fmt.Fprintln(w, text.Visible(name(v))); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON writes v in one line. Unprintable characters, which could control a terminal, become escapes.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var line []byte
	for _, r := range string(text) {
		if strconv.IsPrint(r) {
			line = utf8.AppendRune(line, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			line = fmt.Appendf(line, `\u%04x`, unit)
		}
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
