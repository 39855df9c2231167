package phrase

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Moment is an instant as a page shows it: words that tick on in the browser, and the absolute time behind them.
type Moment struct {
	At     time.Time
	Kind   string // how app.js goes on with the words: age, alert, unlock, last, next, then, over; empty: not at all
	Text   string
	Spoken string // for ears, where Text changes every second
}

// Viewpoint is the point in time from which a page looks at the locks.
type Viewpoint struct {
	Now   time.Time
	AsOf  time.Time // of what is shown: now, or the last sign of life of etcd where the picture is stale
	Stale bool      // what happened between asOf and now is not known
}

// LiveAt is the viewpoint of a picture that is current.
func LiveAt(now time.Time) Viewpoint { return Viewpoint{Now: now, AsOf: now} }

// StaleAt is the viewpoint of a picture that is as old as the last sign of life of etcd.
func StaleAt(now, heard time.Time) Viewpoint { return Viewpoint{Now: now, AsOf: heard, Stale: true} }

// NowWord names the moment of what is shown.
func (l Viewpoint) NowWord() string {
	if l.Stale {
		return "as of " + TimeOfDay(l.AsOf)
	}
	return "now"
}

// Age is how long ago something was. Clocks differ, so it is never negative.
func (l Viewpoint) Age(t time.Time) *Moment {
	if t.IsZero() {
		return nil
	}
	return &Moment{At: t, Kind: "age", Text: Duration(l.Now.Sub(t))}
}

// Lasting is how long something has lasted that may be over where the picture is stale: there it is the length that was
// known last.
func (l Viewpoint) Lasting(t time.Time) *Moment {
	m := l.Age(t)
	if m != nil && l.Stale {
		m.Kind = ""
		m.Text = Duration(l.AsOf.Sub(t))
	}
	return m
}

// AlertOf is the alert of a lock. One that comes only with the auto-unlock has no time of its own.
func (l Viewpoint) AlertOf(r *metadata.Record, v staleness.Verdict) *Moment {
	m := l.Alert(v.AlertAt)
	if v.State != staleness.Held || !v.AlertsAtUnlock() {
		return m
	}
	if m.Kind, m.Spoken, m.Text = "", "", "at unlock"; staleness.KeptAlive(r) {
		m.Text = "if silent"
	}
	return m
}

// Alert is the distance to the alert: in 6m, 14m ago.
func (l Viewpoint) Alert(t time.Time) *Moment {
	switch left := t.Sub(l.Now); {
	case t.IsZero():
		return nil
	case l.Stale && !t.After(l.AsOf):
		return &Moment{At: t, Text: Duration(l.AsOf.Sub(t)) + " ago"}
	case l.Stale && left > 0:
		return &Moment{At: t, Kind: "then", Text: "in " + countdown(left), Spoken: spoken(left)}
	case l.Stale:
		return &Moment{At: t, Text: "was due"}
	case left > 0:
		return &Moment{At: t, Kind: "alert", Text: "in " + countdown(left), Spoken: spoken(left)}
	default:
		return &Moment{At: t, Kind: "alert", Text: Duration(-left) + " ago"}
	}
}

// Unlock is the time left to the auto-unlock, or by how much it is late.
func (l Viewpoint) Unlock(t time.Time) *Moment {
	switch left := t.Sub(l.Now); {
	case t.IsZero():
		return nil
	case left > 0 && l.Stale:
		return &Moment{At: t, Kind: "last", Text: countdown(left), Spoken: spoken(left)}
	case left > 0:
		return &Moment{At: t, Kind: "unlock", Text: countdown(left), Spoken: spoken(left)}
	case l.Stale:
		return &Moment{At: t, Text: "outcome unknown"}
	default:
		return &Moment{At: t, Kind: "over", Text: overdue(-left), Spoken: Duration(-left) + " late"}
	}
}

// Next is unlock for a sentence: "in 1:42", which becomes "due".
func (l Viewpoint) Next(t time.Time) *Moment {
	m := l.Unlock(t)
	switch {
	case m == nil:
	case m.Kind == "unlock":
		m.Kind, m.Text = "next", "in "+m.Text
	case m.Kind == "last":
		m.Kind, m.Text = "then", "in "+m.Text
	}
	return m
}

// Since is an instant in the past: "14m ago".
func (l Viewpoint) Since(t time.Time) *Moment {
	m := l.Age(t)
	if m == nil {
		return nil
	}
	m.Kind, m.Text = "alert", m.Text+" ago"
	if left := t.Sub(l.Now); left > 0 {
		m.Text = "in " + countdown(left)
		m.Spoken = spoken(left)
	}
	return m
}

// spoken is a countdown that does not change every second; empty where the countdown does not either.
func spoken(left time.Duration) string {
	switch {
	case left >= closeBy:
		return ""
	case left > time.Minute:
		return "under 2 minutes"
	}
	return "under a minute"
}
