package dashboard

import (
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// moment is an instant as a page shows it: words that tick on in the browser, and the absolute time behind them.
type moment struct {
	At     time.Time
	Kind   string // how app.js goes on with the words: age, alert, unlock, last, next, then, over; empty: not at all
	Text   string
	Spoken string // for ears, where Text changes every second
}

// lens is the point in time from which a page looks at the locks.
type lens struct {
	now   time.Time
	asOf  time.Time // of what is shown: now, or the last sign of life of etcd where the picture is stale
	stale bool      // what happened between asOf and now is not known
}

func newLens(now time.Time, f Freshness, level freshness) lens {
	if level == stale {
		return lens{now: now, asOf: f.Heard, stale: true}
	}
	return lens{now: now, asOf: now}
}

// of is the lens for a lock, which is not stale where etcd has just been read.
func (l lens) of(v *lockView) lens {
	if v.unread == "" {
		return lens{now: l.now, asOf: l.now}
	}
	return l
}

// nowWord names the moment of what is shown.
func (l lens) nowWord() string {
	if l.stale {
		return "as of " + clock(l.asOf)
	}
	return "now"
}

// age is how long ago something was. Clocks differ, so it is never negative.
func (l lens) age(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	return &moment{At: t, Kind: "age", Text: short(l.now.Sub(t))}
}

// lasting is how long something has lasted that may be over where the picture is stale: there it is the length that was
// known last.
func (l lens) lasting(t time.Time) *moment {
	m := l.age(t)
	if m != nil && l.stale {
		m.Kind = ""
		m.Text = short(l.asOf.Sub(t))
	}
	return m
}

// alertOf is the alert of a lock. One that comes only with the auto-unlock has no time of its own.
func (l lens) alertOf(r *row) *moment {
	m := l.alert(r.verdict.AlertAt)
	if r.verdict.State != staleness.Held || !r.verdict.AlertsAtUnlock() {
		return m
	}
	if m.Kind, m.Spoken, m.Text = "", "", "at unlock"; staleness.KeptAlive(r.Record) {
		m.Text = "if silent"
	}
	return m
}

// alert is the distance to the alert: in 6m, 14m ago.
func (l lens) alert(t time.Time) *moment {
	switch left := t.Sub(l.now); {
	case t.IsZero():
		return nil
	case l.stale && !t.After(l.asOf):
		return &moment{At: t, Text: short(l.asOf.Sub(t)) + " ago"}
	case l.stale && left > 0:
		return &moment{At: t, Kind: "then", Text: "in " + countdown(left), Spoken: spoken(left)}
	case l.stale:
		return &moment{At: t, Text: "was due"}
	case left > 0:
		return &moment{At: t, Kind: "alert", Text: "in " + countdown(left), Spoken: spoken(left)}
	default:
		return &moment{At: t, Kind: "alert", Text: short(-left) + " ago"}
	}
}

// unlock is the time left to the auto-unlock, or by how much it is late.
func (l lens) unlock(t time.Time) *moment {
	switch left := t.Sub(l.now); {
	case t.IsZero():
		return nil
	case left > 0 && l.stale:
		return &moment{At: t, Kind: "last", Text: countdown(left), Spoken: spoken(left)}
	case left > 0:
		return &moment{At: t, Kind: "unlock", Text: countdown(left), Spoken: spoken(left)}
	case l.stale:
		return &moment{At: t, Text: "outcome unknown"}
	default:
		return &moment{At: t, Kind: "over", Text: overdue(-left), Spoken: short(-left) + " late"}
	}
}

// next is unlock for a sentence: "in 1:42", which becomes "due".
func (l lens) next(t time.Time) *moment {
	m := l.unlock(t)
	switch {
	case m == nil:
	case m.Kind == "unlock":
		m.Kind, m.Text = "next", "in "+m.Text
	case m.Kind == "last":
		m.Kind, m.Text = "then", "in "+m.Text
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

// part is a piece of a sentence: plain words, a moment, or the name of a lock or another text from outside.
type part struct {
	Text  string
	Time  *moment
	Value string // from outside
	URL   string // of Value
}

// sentence is what a page says, in pieces.
type sentence []part

func say(text string) sentence                 { return sentence{{Text: text}} }
func (s sentence) say(text string) sentence    { return append(s, part{Text: text}) }
func (s sentence) value(v string) sentence     { return append(s, part{Value: v}) }
func (s sentence) time(m *moment) sentence     { return append(s, part{Time: m}) }
func (s sentence) link(v, url string) sentence { return append(s, part{Value: v, URL: url}) }
func (s sentence) when(ok bool, t string) sentence {
	if ok {
		return s.say(t)
	}
	return s
}

// String is the sentence for programs and ears.
func (s sentence) String() string {
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
