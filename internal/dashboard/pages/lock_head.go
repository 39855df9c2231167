package pages

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// WaitingSentence says how many wait, and for how long.
func WaitingSentence(q locks.Queue, at app.Viewpoint) app.RichText {
	longest := at.Lasting(q.Longest)
	switch {
	case q.Waiters == 0:
		return app.Plain("No waiters.")
	case longest == nil:
		return app.RichText{}.Value(app.Plural(q.Waiters, "waiter", "waiters")).Plain(".")
	}
	if q.Waiters == 1 {
		return app.RichText{}.Value("1 waiter").Plain(", for ").Time(longest).Plain(".")
	}
	return app.RichText{}.Value(text.Thousands(q.Waiters) + " waiting").Plain(", longest ").Time(longest).Plain(".")
}

// Diagnose says what is probably the matter with the holder of a lock. past are holds of the lock that are over.
func (p *Pages) Diagnose(r *app.Request, lock *app.Lock, past []metadata.Ending) diagnosis.Diagnosis {
	row := lock.Row
	f := diagnosis.Facts{Record: row.Record, Judged: row.Verdict(), Now: lock.Viewpoint(r.Viewpoint()).AsOf,
		ReportInterval: diagnosis.ReportInterval(row.Record)}
	f.Compare(past)
	s := r.Snapshot()
	f.Waits, _ = diagnosis.WaitChain(row.Record, s.Queues, func(lock string) (holders []*metadata.Record, _ error) {
		for _, h := range s.Holders(lock) {
			holders = append(holders, h.Record)
		}
		return holders, nil
	})
	return diagnosis.Diagnose(f)
}

// diagnosed is a diagnosis as a page says it; nil where nothing is known, or where the page says it at greater length.
func (p *Pages) diagnosed(d diagnosis.Diagnosis, at app.Viewpoint) app.RichText {
	if d.Condition == diagnosis.Unknown || d.Condition == diagnosis.Dead {
		return nil
	}
	return app.RichText{}.Value(d.Label).Plain(": ").Append(p.sentenceAt(d.Why, at)).Plain(".")
}

// copyView is a button that copies a text. Its name for ears begins with its text and says what is copied.
type copyView struct{ Text, Name, Copied string }

// fillCopies adds what can be copied from the head of the page.
func (p *Pages) fillCopies(v *lockPage, r *app.Request, row *locks.Row) {
	for _, c := range FindHolderCommands(row) {
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
func (p *Pages) incident(v *lockPage, r *app.Request, row *locks.Row) string {
	lines := []string{v.Headline.String()}
	if environment := v.Environment; environment != "" {
		lines[0] = "[" + environment + "] " + lines[0]
	}
	for _, said := range []app.RichText{v.Sentence, v.Diagnosis, v.Ack.Text} {
		if said != nil {
			lines = append(lines, said.String())
		}
	}
	if v.Purpose != "" {
		lines = append(lines, "For: "+text.Visible(v.Purpose))
	}
	if v.Trace != nil && v.Trace.First != nil {
		at := "At: " + v.Trace.First.Position()
		if f := v.Trace.First.Func; f != "" {
			at += " in " + f
		}
		lines = append(lines, text.Visible(at))
	}
	if n := v.Queue.N; n > 0 {
		var who []string
		for _, w := range v.Queue.First[:min(n, maxWaitersEach)] {
			one := processText(w.Owner, w.Host, 0).String()
			if w.Since != nil {
				one += " (" + w.Since.Text + ")"
			}
			who = append(who, one)
		}
		if more := n - len(who); more > 0 {
			who = append(who, "and "+text.Thousands(more)+" more")
		}
		lines = append(lines, "Waiting: "+strings.Join(who, ", "))
	}
	lines = append(lines, "Time: "+app.UTC(v.Viewpoint.AsOf))
	if url := p.app.URLs.Lock(row.Name, row.UUID); url != "" {
		lines = append(lines, r.Caller.Origin+url)
	}
	return strings.Join(lines, "\n")
}

// HolderSentence says who holds the lock and what happens next, which the unlockers decide.
func HolderSentence(r *locks.Row, at app.Viewpoint, unlockers []protocol.Unlocker) app.RichText {
	s := holderText(r, at)
	unlock := at.Next(r.UnlockAt())
	apart := r.Verdict().State != staleness.Held || !r.Verdict().AlertsAtUnlock()
	never := WhyNeverRemoved(r.Name, unlockers)
	comes := "alert and auto-unlock "
	if never != nil {
		comes = "alert "
		never = app.Plain(" ").Append(never)
	}
	switch {
	case unlock == nil:
		return addAlertText(s, r, at).Plain(" It is never auto-unlocked.")
	case never != nil && (apart || unlock.Kind == "over"):
		return addAlertText(s, r, at).Append(never)
	case unlock.Kind == "over":
		return addAlertText(s, r, at).Plain(" The auto-unlock is overdue by ").Time(at.Age(r.UnlockAt())).Plain(".")
	case unlock.Kind == "":
		return addAlertText(s, r, at).Plain(" Its deadline has passed, outcome unknown.")
	case apart:
		return addAlertText(s, r, at).Plain(" Auto-unlock ").Time(unlock).Plain(".")
	case !staleness.KeptAlive(r.Record):
		return s.Plain(" Unless it is extended, " + comes).Time(unlock).Plain(".").Append(never)
	}
	s = s.Plain(" Extended")
	if every := diagnosis.ReportInterval(r.Record); every > 0 {
		s = s.Plain(" every " + text.Duration(every) + ",")
	}
	return s.Plain(" last ").Time(at.Lasting(r.Alive.At)).Plain(" ago.").
		Plain(" If it stays silent, " + comes).Time(unlock).Plain(".").Append(never)
}

// holderText says who holds the lock, and for how long.
func holderText(r *locks.Row, at app.Viewpoint) app.RichText {
	var s app.RichText
	if at.Stale {
		s = s.Plain("As of " + app.TimeOfDay(at.AsOf) + " UTC: ")
	}
	if r.Token == 0 {
		s = s.Plain("Not held, but keys of its record were left")
	} else {
		s = s.Plain("Held")
	}
	if r.Owner != "" {
		s = s.Plain(" by ").Value(r.Owner)
	}
	if host := locks.HostPID(r.Hostname, r.PID); r.Hostname != "" {
		s = s.Plain(" on ").Value(host)
	}
	if held := at.Lasting(r.LockedAt); held != nil {
		s = s.Plain(" for ").Time(held)
	}
	return s.Plain(".")
}

// addAlertText adds when people are alerted, or since when they are.
func addAlertText(s app.RichText, r *locks.Row, at app.Viewpoint) app.RichText {
	switch alert := r.Verdict().AlertAt; {
	case r.Verdict().State == staleness.Alerting:
		return s.Plain(" Alerting for ").Time(at.Lasting(alert)).Plain(".")
	case r.Verdict().State == staleness.Held && alert.After(at.AsOf):
		return s.Plain(" Alert ").Time(at.Alert(alert)).Plain(".")
	}
	return s
}

// malformedPolicyText says what the unlockers do with a record that lacks a deadline.
func malformedPolicyText(r *locks.Row, unlockers []protocol.Unlocker) string {
	var s strings.Builder
	v := r.Verdict()
	lacking := r.AlertAt.IsZero() && v.AlertAt.IsZero() || r.AutoUnlockAt.IsZero() && v.AutoUnlockAt.IsZero()
	if f := diagnosis.CombinePolicies(protocol.Presences(unlockers)); lacking && len(f.PolicyUnknown) > 0 {
		return policyUnknownText("Whether an unlocker's defaults alert about it or remove it", &f).String()
	}
	switch {
	case r.AlertAt.IsZero() && r.Verdict().AlertAt.IsZero():
		s.WriteString("It alerts only as a malformed record. ")
	case r.AlertAt.IsZero():
		s.WriteString("The default policy alerts at " + app.UTC(r.Verdict().AlertAt) + ". ")
	}
	switch {
	case r.AutoUnlockAt.IsZero() && r.Verdict().AutoUnlockAt.IsZero():
		s.WriteString("It is never removed automatically, because its deadline cannot be read: an operator must " +
			"unlock it.")
	case r.AutoUnlockAt.IsZero():
		s.WriteString("The default policy removes it at " + app.UTC(r.Verdict().AutoUnlockAt) + ".")
	default:
		s.WriteString("It is removed at its deadline, like any other lock.")
	}
	return s.String()
}

// clockOff says how far a holder's clock is off; empty when it is not.
func clockOff(off time.Duration) string {
	switch {
	case off > 0:
		return "clock " + text.Duration(off) + " ahead"
	case off < 0:
		return "clock " + text.Duration(-off) + " behind"
	}
	return ""
}

// skewSentence says what it means for the lock that its holder's clock differs from the one here.
func skewSentence(r *locks.Row, now time.Time) string {
	ahead := r.LockedAt.Sub(now)
	switch off := r.Verdict().ClockOff; {
	case off < 0:
		return "clock skew -" + text.Duration(-off) +
			": the holder's clock is behind this dashboard's. The auto-unlock is shown by this dashboard's clock, " +
			"which is later than the record says"
	case off > 0:
		return "clock skew +" + text.Duration(off) +
			": the holder's clock is ahead of this dashboard's. The alert is shown by this dashboard's clock, " +
			"which is earlier than the record says"
	case ahead > 5*time.Second:
		return "clock skew +" + text.Duration(ahead) + ": the holder's clock is ahead of this dashboard's"
	}
	return ""
}
