package app

import (
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// TimeText is a time for display: app.js keeps Text current; At is exact.
type TimeText struct {
	At time.Time
	// how app.js keeps Text current: age, alert, next, then, over; empty: not at all
	Kind             string
	Text             string
	ScreenReaderText string // instead of a Text that changes every second
	IsClock          bool   // Text is a time of day
}

// Viewpoint is the point in time from which a page looks at the locks.
type Viewpoint struct {
	Now   time.Time
	AsOf  time.Time // of what is shown: now, or the last sign of life of etcd where the snapshot is stale
	Stale bool      // what happened between asOf and now is not known
}

// LiveAt returns the viewpoint of a snapshot that is current.
func LiveAt(now time.Time) Viewpoint { return Viewpoint{Now: now, AsOf: now} }

// Age returns how long ago something was. Clocks differ, so it is never negative.
func (v Viewpoint) Age(t time.Time) *TimeText {
	if t.IsZero() {
		return nil
	}
	return &TimeText{At: t, Kind: "age", Text: text.Duration(v.Now.Sub(t))}
}

// Elapsed returns how long something has lasted that may be over by now. If the snapshot is stale, it is the last known
// length.
func (v Viewpoint) Elapsed(t time.Time) *TimeText {
	m := v.Age(t)
	if m != nil && v.Stale {
		m.Kind = ""
		m.Text = text.Duration(v.AsOf.Sub(t))
	}
	return m
}

// AlertOf returns the alert of a lock. One that comes only with the auto-unlock has no time of its own.
func (v Viewpoint) AlertOf(r *metadata.Record, judged staleness.Judgement, neverRemoved bool) *TimeText {
	m := v.Alert(judged.DueAlert)
	if neverRemoved || judged.State != metadata.StateHeld || !judged.AlertsAtUnlock() {
		return m
	}
	if staleness.KeptAlive(r) {
		return &TimeText{At: m.At, Text: "if silent"}
	}
	return &TimeText{At: m.At, Text: "at unlock"}
}

// Alert returns the distance to the alert: in 6m, 14m ago.
func (v Viewpoint) Alert(t time.Time) *TimeText {
	switch left := t.Sub(v.Now); {
	case t.IsZero():
		return nil
	case v.Stale && !t.After(v.AsOf):
		return &TimeText{At: t, Text: text.Duration(v.AsOf.Sub(t)) + " ago"}
	case left > 0:
		return v.ahead(t, "alert")
	case v.Stale:
		return &TimeText{At: t, Text: "was due"}
	default:
		return &TimeText{At: t, Kind: "alert", Text: text.Duration(-left) + " ago"}
	}
}

// Next returns the time left to the auto-unlock, "in 1:42", which becomes "due", or by how much it is late.
func (v Viewpoint) Next(t time.Time) *TimeText {
	left := t.Sub(v.Now)
	switch {
	case t.IsZero():
		return nil
	case left <= 0 && v.Stale:
		return &TimeText{At: t, Text: "outcome unknown"}
	case left <= 0:
		return &TimeText{At: t, Kind: "over", Text: text.Overdue(-left), ScreenReaderText: text.Duration(-left) +
			" late"}
	}
	return v.ahead(t, "next")
}

// ahead returns an instant in the future, "in 6m"; kind is its Kind, unless the snapshot is stale.
func (v Viewpoint) ahead(t time.Time, kind string) *TimeText {
	left := t.Sub(v.Now)
	if v.Stale {
		kind = "then"
	}
	return &TimeText{At: t, Kind: kind, Text: "in " + text.Countdown(left), ScreenReaderText: screenReaderText(left)}
}

// Since returns an instant in the past: "14m ago", as of the viewpoint.
func (v Viewpoint) Since(t time.Time) *TimeText {
	m := v.Elapsed(t)
	switch {
	case m == nil:
		return nil
	case t.After(v.Now):
		return v.ahead(t, "alert")
	case !v.Stale:
		m.Kind = "alert"
	}
	m.Text += " ago"
	return m
}

// screenReaderText returns a countdown that does not change every second; empty if the shown one does not, either.
func screenReaderText(left time.Duration) string {
	switch {
	case left >= text.SecondsBelow:
		return ""
	case left > time.Minute:
		return "under 2 minutes"
	}
	return "under a minute"
}

// UTC formats an instant for people.
func UTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// TimeOfDay formats the time of day of an instant, for sentences about the last minutes.
func TimeOfDay(t time.Time) string { return t.UTC().Format("15:04:05") }

// Clock returns a time of day in a sentence; app.js shows it in local time to those who want that.
func Clock(t time.Time) *TimeText {
	return &TimeText{At: t, Text: TimeOfDay(t) + " UTC", IsClock: true}
}

// Minute formats a time of day without seconds.
func Minute(t time.Time) string { return t.UTC().Format("15:04") + " UTC" }

// iso formats an instant for programs, in milliseconds.
func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Part is a part of a [RichText]: our text, a time, or text from outside.
type Part struct {
	Text  string
	Time  *TimeText
	Value string // from outside
	URL   string // of Value
}

// RichText is text in parts: pages update its times and link its locks.
type RichText []Part

func Plain(text string) RichText               { return RichText{{Text: text}} }
func (s RichText) Plain(text string) RichText  { return append(s, Part{Text: text}) }
func (s RichText) Value(v string) RichText     { return append(s, Part{Value: v}) }
func (s RichText) Append(o RichText) RichText  { return append(s, o...) }
func (s RichText) Time(m *TimeText) RichText   { return append(s, Part{Time: m}) }
func (s RichText) Link(v, url string) RichText { return append(s, Part{Value: v, URL: url}) }

// String returns plain text, for JSON and screen readers.
func (s RichText) String() string {
	said := ""
	for _, p := range s {
		switch {
		case p.Time != nil:
			said += p.Time.Text
		case p.Value != "":
			said += text.Visible(p.Value)
		default:
			said += p.Text
		}
	}
	return said
}

// Plural returns "1 lock" or "2 locks".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return text.Thousands(n) + " " + many
}

// NumberOrEmpty returns n in digits; empty for 0, which means unknown.
func NumberOrEmpty(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
