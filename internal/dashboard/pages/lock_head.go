package pages

import (
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// blocked says what decides how bad it is: who waits for the lock, and how long its holder has been silent.
func blocked(r *locks.Row, at phrase.Viewpoint) phrase.Sentence {
	said := WaitingSentence(*r.Queue, at)
	if r.Alive == nil || r.Alive.At.IsZero() || r.Proven() || !locks.Troubled(r.Display) {
		return said
	}
	return said.Say(" Silent for ").Time(at.Lasting(r.Alive.At)).Say(".")
}

// WaitingSentence says how many wait, and for how long.
func WaitingSentence(q locks.Queue, at phrase.Viewpoint) phrase.Sentence {
	longest := at.Lasting(q.Longest)
	switch {
	case q.Waiters == 0:
		return phrase.Say("Nobody waits.")
	case longest == nil:
		return phrase.Sentence{}.Value(phrase.Plural(q.Waiters, "waiter", "waiters")).Say(".")
	}
	if q.Waiters == 1 {
		return phrase.Sentence{}.Value("1 waiter").Say(", for ").Time(longest).Say(".")
	}
	return phrase.Sentence{}.Value(phrase.Thousands(q.Waiters) + " wait").Say(", longest ").Time(longest).Say(".")
}

// Diagnose says what is probably the matter with the holder of a lock. past are holds of the lock that are over.
func (p *Pages) Diagnose(r *site.Request, lock *site.Lock, past []metadata.Ending) diagnosis.Diagnosis {
	row := lock.Row
	f := diagnosis.Facts{Record: row.Record, Judged: row.Verdict(), Now: lock.Viewpoint(r.Viewpoint()).AsOf,
		Every: diagnosis.Every(row.Record, lock.Document.Fields)}
	f.Compare(past)
	s := r.Snapshot()
	f.Waits, _ = diagnosis.Chain(row.Record, s.Queues, func(lock string) (holders []*metadata.Record, _ error) {
		for _, h := range s.Holders(lock) {
			holders = append(holders, h.Record)
		}
		return holders, nil
	})
	return diagnosis.Of(f)
}

// diagnosed is a diagnosis as a page says it; nil where nothing is known, or where the page says it at greater length.
func diagnosed(d diagnosis.Diagnosis, at phrase.Viewpoint) phrase.Sentence {
	if d.Word == diagnosis.Unknown || d.Word == diagnosis.Dead {
		return nil
	}
	said := phrase.Sentence{}.Value(d.Label).Say(": ")
	for _, part := range d.Why {
		switch {
		case !part.Since.IsZero():
			said = said.Time(at.Lasting(part.Since))
		case part.Value != "":
			said = said.Value(text.Clip(part.Value, site.MaxNameShown))
		default:
			said = said.Say(part.Text)
		}
	}
	return said.Say(".")
}

// copyView is a button that copies a text. Its name for ears begins with its text and says what is copied.
type copyView struct{ Text, Name, Copied string }

// fillCopies adds what can be copied from the head of the page.
func (p *Pages) fillCopies(v *lockPage, r *site.Request, row *locks.Row) {
	for _, c := range Whereabouts(row) {
		if word := "copy " + commandWord(c.Line); !strings.Contains(c.Line, " get ") {
			v.Copies = append(v.Copies, copyView{word, word + ": " + c.Line, c.Line})
			break
		}
	}
	v.Copies = append(v.Copies, copyView{"copy for the incident",
		"copy for the incident: what is the matter, code location, waiters, link", p.incident(v, r, row)})
}

// commandWord names a command: kubectl logs, ssh.
func commandWord(line string) string {
	words := strings.Fields(line)
	if words[0] == "kubectl" {
		return strings.Join(words[:2], " ")
	}
	return words[0]
}

// incident is what somebody pastes into the channel of an incident: plain text, as of now.
func (p *Pages) incident(v *lockPage, r *site.Request, row *locks.Row) string {
	lines := []string{text.Visible(row.Name) + " is " + string(row.Display) + ". " + v.Blocked.String()}
	if environment := p.site.Config.Environment; environment != "" {
		lines[0] = "[" + environment + "] " + lines[0]
	}
	for _, said := range []phrase.Sentence{v.Death, v.Sentence, v.Diagnosis} {
		if said != nil {
			lines = append(lines, said.String())
		}
	}
	if v.Purpose != "" {
		lines = append(lines, "For: "+text.Visible(v.Purpose))
	}
	if v.Trace != nil && v.Trace.First != nil {
		at := "At: " + v.Trace.First.Where()
		if f := v.Trace.First.Func; f != "" {
			at += " in " + f
		}
		lines = append(lines, text.Visible(at))
	}
	if n := len(v.Waiters); n > 0 {
		var who []string
		for _, w := range v.Waiters[:min(n, maxWaitersEach)] {
			one := w.Owner + " on " + w.Host
			if w.Since != nil {
				one += " (" + w.Since.Text + ")"
			}
			who = append(who, text.Visible(one))
		}
		if more := n - len(who); more > 0 {
			who = append(who, "and "+phrase.Thousands(more)+" more")
		}
		lines = append(lines, "Waiting: "+strings.Join(who, ", "))
	}
	lines = append(lines, "Time: "+phrase.UTC(v.Viewpoint.AsOf))
	if url := p.site.URLs.Lock(row.Name, row.UUID); url != "" {
		lines = append(lines, r.Caller.Origin+url)
	}
	return strings.Join(lines, "\n")
}
