package dashboard

import "time"

// moment is an instant as a page shows it: words that tick on in the browser, and the absolute time behind them.
type moment struct {
	At     time.Time
	Kind   string // how app.js goes on with the words: age, alert, unlock, last, over; empty: not at all
	Text   string
	Spoken string // for ears, where Text changes every second
}

// lens is the point in time from which a page looks at the locks.
type lens struct {
	now   time.Time
	stale bool // what is past now may not have happened
}

// age is how long something has lasted. Clocks differ, so it is never negative.
func (l lens) age(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	return &moment{At: t, Kind: "age", Text: short(l.now.Sub(t))}
}

// alert is the distance to the alert: in 6m, 14m ago.
func (l lens) alert(t time.Time) *moment {
	switch left := t.Sub(l.now); {
	case t.IsZero():
		return nil
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
	text := ""
	for _, p := range s {
		switch {
		case p.Time != nil:
			text += p.Time.Text
		case p.Value != "":
			text += plain(p.Value)
		default:
			text += p.Text
		}
	}
	return text
}
