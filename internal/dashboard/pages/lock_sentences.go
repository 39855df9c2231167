package pages

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// HolderSentence says who holds the lock and what happens next, which the unlockers decide. fields are those of its
// record, where they are known.
func HolderSentence(r *locks.Row, at phrase.Viewpoint, fields []metadata.Field,
	unlockers []protocol.Unlocker) phrase.Sentence {
	s := sayHolder(r, at)
	unlock := at.Next(r.Verdict().AutoUnlockAt)
	apart := r.Verdict().State != staleness.Held || !r.Verdict().AlertsAtUnlock()
	never := Spared(r.Name, unlockers)
	comes := "alert and auto-unlock "
	if never != nil {
		comes = "alert "
		never = phrase.Say(" ").Sentence(never)
	}
	switch {
	case unlock == nil:
		return sayAlert(s, r, at).Say(" It never unlocks by itself.")
	case never != nil && (apart || unlock.Kind == "over"):
		return sayAlert(s, r, at).Sentence(never)
	case unlock.Kind == "over":
		return sayAlert(s, r, at).Say(" The auto-unlock is late by ").Time(at.Age(r.Verdict().AutoUnlockAt)).Say(".")
	case unlock.Kind == "":
		return sayAlert(s, r, at).Say(" Its deadline passed, outcome unknown.")
	case apart:
		return sayAlert(s, r, at).Say(" Auto-unlock ").Time(unlock).Say(".")
	case !staleness.KeptAlive(r.Record):
		return s.Say(" Unless it is extended, " + comes).Time(unlock).Say(".").Sentence(never)
	}
	s = s.Say(" Extended")
	if every := diagnosis.Every(r.Record, fields); every > 0 {
		s = s.Say(" every " + text.Duration(every) + ",")
	}
	return s.Say(" last ").Time(at.Lasting(r.Alive.At)).Say(" ago.").
		Say(" If it stays silent, " + comes).Time(unlock).Say(".").Sentence(never)
}

// sayHolder says who holds the lock, and for how long.
func sayHolder(r *locks.Row, at phrase.Viewpoint) phrase.Sentence {
	var s phrase.Sentence
	if at.Stale {
		s = s.Say("As of " + phrase.TimeOfDay(at.AsOf) + " UTC: ")
	}
	if r.Token == 0 {
		s = s.Say("Not held by anybody, but keys of it are there")
	} else {
		s = s.Say("Held")
	}
	if r.Owner != "" {
		s = s.Say(" by ").Value(r.Owner)
	}
	if host := locks.HostPID(r.Hostname, r.PID); r.Hostname != "" {
		s = s.Say(" on ").Value(host)
	}
	if held := at.Lasting(r.LockedAt); held != nil {
		s = s.Say(" for ").Time(held)
	}
	return s.Say(".")
}

// sayAlert adds when people are alerted, or since when they are.
func sayAlert(s phrase.Sentence, r *locks.Row, at phrase.Viewpoint) phrase.Sentence {
	switch alert := r.Verdict().AlertAt; {
	case r.Verdict().State == staleness.Alerting:
		return s.Say(" Alerting for ").Time(at.Lasting(alert)).Say(".")
	case r.Verdict().State == staleness.Held && alert.After(at.AsOf):
		return s.Say(" Alert ").Time(at.Alert(alert)).Say(".")
	}
	return s
}

// withoutDeadline says what the unlockers do with a record that lacks a deadline.
func withoutDeadline(r *locks.Row, unlockers []protocol.Unlocker) string {
	var s strings.Builder
	v := r.Verdict()
	lacking := r.AlertAt.IsZero() && v.AlertAt.IsZero() || r.AutoUnlockAt.IsZero() && v.AutoUnlockAt.IsZero()
	if f := setup.FateBy(unlockers); lacking && len(f.Silent) > 0 {
		return notKnown("Whether a default of the unlockers alerts about it or removes it", &f).String()
	}
	switch {
	case r.AlertAt.IsZero() && r.Verdict().AlertAt.IsZero():
		s.WriteString("It never alerts as a lock, only as a malformed one. ")
	case r.AlertAt.IsZero():
		s.WriteString("The default policy alerts at " + phrase.UTC(r.Verdict().AlertAt) + ". ")
	}
	switch {
	case r.AutoUnlockAt.IsZero() && r.Verdict().AutoUnlockAt.IsZero():
		s.WriteString("It is never removed for a deadline that cannot be read: somebody must unlock it.")
	case r.AutoUnlockAt.IsZero():
		s.WriteString("The default policy removes it at " + phrase.UTC(r.Verdict().AutoUnlockAt) + ".")
	default:
		s.WriteString("It is removed at its deadline like any other.")
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
			": the holder's clock is behind this dashboard's. The auto-unlock is shown by the clock here, which is " +
			"later than the record says"
	case off > 0:
		return "clock skew +" + text.Duration(off) +
			": the holder's clock is ahead of this dashboard's. The alert is shown by the clock here, which is " +
			"earlier than the record says"
	case ahead > 5*time.Second:
		return "clock skew +" + text.Duration(ahead) + ": the holder's clock is ahead of this dashboard's"
	}
	return ""
}
