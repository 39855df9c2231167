package headline

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// held describes what is wrong with a held lock.
func (c *Input) held(l *locks.HeldLock) (summary sentence, then []sentence) {
	then = []sentence{c.waitersText(l)}
	switch l.Class {
	case locks.ClassOverdue:
		summary = c.overdueText(l)
	case locks.ClassDead:
		summary = c.deadText(l)
		then = append(then, c.whyDeadRemains(l))
	case locks.ClassSilent:
		summary = c.silentText(l)
		then = append(then, c.autoUnlockText(l))
	case locks.ClassLate:
		summary = c.lateText(l)
		then = append(then, c.autoUnlockText(l))
	case locks.ClassMalformed:
		summary = c.malformedText(l)
	case locks.ClassLeaving:
		summary = c.leavingText(l)
	default:
		summary = c.onTimeText(l)
		then = append(then, c.alertText(l))
		if !l.AlertsAtUnlock() || c.WhyNeverRemoved(l) != "" {
			then = append(then, c.autoUnlockText(l))
		}
	}
	return summary, append(then, acknowledgedText(l.Acknowledged))
}

// subject begins a sentence about a lock, or one about its holder.
func (c *Input) subject(l *locks.HeldLock, holder bool) (s sentence) {
	switch {
	case l.Shares > 1:
		s = s.Say("One of " + text.Thousands(l.Shares) + " holders")
	case !holder:
		return c.name(l.Lock)
	case c.OmitName:
		return s.Say("Its holder")
	default:
		s = s.Say("The holder")
	}
	return s.And(c.ofLock(l))
}

// name begins a sentence with a lock.
func (c *Input) name(lock string) (s sentence) {
	if c.OmitName {
		return s.Say("It")
	}
	return s.Lock(lock)
}

// ofLock names the lock after its holders.
func (c *Input) ofLock(l *locks.HeldLock) (s sentence) {
	if c.OmitName {
		return nil
	}
	return s.Say(" of ").Lock(l.Lock)
}

func (c *Input) overdueText(l *locks.HeldLock) (s sentence) {
	s = c.subject(l, l.State == metadata.StateAbandoned)
	stays := c.WhyNeverRemoved(l)
	switch {
	case stays != "":
		return s.Say(" expired ").Since(l.ExpiresAt).
			Say(" ago and will not be removed: " + stays + ".")
	case l.State == metadata.StateAbandoned:
		s = s.Say(" is dead, and the lock should have been removed ")
	default:
		s = s.Say(" should have been removed ")
	}
	s = s.Since(l.OverdueAt(c.Combined.Policy)).Say(" ago")
	switch paused := c.paused(l); {
	case len(paused) > 0:
		s = s.Say(": " + diagnosis.RuleTexts(paused))
	case len(c.Combined.PolicyUnknown) > 0:
		s = s.Say(", but this is not certain: " + c.Combined.WhyUnknown())
	}
	return s.Say(".")
}

func (c *Input) deadText(l *locks.HeldLock) sentence {
	return c.subject(l, true).Say(" is dead: ").And(diagnosis.EndedText(l.Record.Death)).Say(".")
}

func (c *Input) silentText(l *locks.HeldLock) sentence {
	r := l.Record
	s := c.subject(l, false).Say(" is ").Since(l.LateSince())
	has := pick(l.Shares > 1, "has", "its holder has")
	switch {
	case diagnosis.IsSuspected(r):
		return s.Say(" late, and its holder may be dead: ").And(diagnosis.EndedText(r.Suspicion)).
			Say(" (suspected, not proven).")
	case l.Rhythm() == 0:
		return s.Say(" late, and " + has + " never reported.")
	}
	s = s.Say(" late, and " + has + " been silent for ").Since(r.Alive.At)
	if every := diagnosis.ReportInterval(r); every > 0 {
		s = s.Say(" (usually reports every " + text.Duration(every) + ")")
	}
	return s.Say(".")
}

func (c *Input) lateText(l *locks.HeldLock) sentence {
	alive := l.Record.Alive
	s := c.subject(l, false).Say(" is ").Since(l.LateSince()).Say(" late")
	if diagnosis.ReportsProgress(l.Record) {
		return s.Say(pick(l.Shares > 1, ", but reports progress (", ", but its holder reports progress (")).
			Value(text.Clip(alive.Progress, maxProgress)).Say(", ").Since(alive.At).Say(" ago).")
	}
	s = s.Say(". Its process is alive (reported ").Since(alive.At).Say(" ago), but its ")
	if alive.Progress == "" {
		return s.Say("work has reported no progress.")
	}
	return s.Say("last progress is over ").Since(l.LateSince()).Say(" old (").
		Value(text.Clip(alive.Progress, maxProgress)).Say(").")
}

// aliveText says what the reports of a holder that is on time prove: that its process is alive. whose is "and its " or
// "whose ". A heartbeat repeats the last progress, so that the time of that is not known.
func aliveText(l *locks.HeldLock, whose string) (s sentence) {
	s = s.Say(whose + "process is alive (reported ").Since(l.Record.Alive.At).Say(" ago")
	if progress := l.Record.Alive.Progress; progress != "" {
		s = s.Say("; last progress: ").Value(text.Clip(progress, maxProgress))
	}
	return s.Say(")")
}

// maxProgress is how much of a progress a sentence has, in bytes.
const maxProgress = 80

func (c *Input) malformedText(l *locks.HeldLock) sentence {
	r := l.Record
	switch {
	case l.State != metadata.StateMalformed:
		return c.name(l.Lock).Say(" " + l.Inconsistent + ".")
	case r.Misplaced:
		return c.subject(l, false).Say(" is at keys that belong to no lock.")
	case r.Token == 0:
		return c.subject(l, false).Say(" has no holder, only leftover keys.")
	case l.AutoUnlockAt.IsZero():
		return c.unreadableTime(l, l.ExpiresAt.IsZero() && c.Combined.Policy.DefaultAutoUnlockAfter == 0, " ends",
			": its deadline", lockrecord.FieldAutoUnlockAt)
	case l.AlertAt.IsZero():
		return c.unreadableTime(l, l.DueAlert.IsZero() && c.Combined.Policy.DefaultAlertAfter == 0, " is late",
			": its alert", lockrecord.FieldAlertAt)
	}
	return c.subject(l, false).Say(" is malformed: " + unreadableText(r) + ".")
}

// unreadableTime says that a time of the record is missing or cannot be read: nobody can tell it, or the unlockers do.
func (c *Input) unreadableTime(l *locks.HeldLock, unknown bool, what, is, field string) (s sentence) {
	s = s.Say(pick(unknown, "Nobody can tell when ", "Only the unlockers' default says when "))
	if c.OmitName {
		s = s.Say("it" + what + is)
	} else {
		s = s.Lock(l.Lock).Say(what + is)
	}
	value, _, isUnreadable := strings.Cut(problem(l.Record, field).Text, " is not a time")
	if !isUnreadable {
		return s.Say(" is missing.")
	}
	return s.Say(" is ").Value(value).Say(", not seconds since 1970.")
}

// problem is what is wrong with a field of a record that has problems, or else the first of them.
func problem(r *metadata.Record, field string) metadata.Problem {
	i := slices.IndexFunc(r.Problems, func(p metadata.Problem) bool { return p.Field == field })
	return r.Problems[max(0, i)]
}

func (c *Input) leavingText(l *locks.HeldLock) sentence {
	abandoned := l.State == metadata.StateAbandoned
	is := pick(abandoned, " is dead", " has expired")
	if l.Display == metadata.StateExpiring {
		is = " is about to expire"
	}
	s := c.subject(l, abandoned).Say(is)
	if paused := c.paused(l, staleness.RuleUnverified); len(paused) > 0 {
		return s.Say("; auto-unlock is paused: " + diagnosis.RuleTexts(paused) + ".")
	}
	return s.Say("; auto-unlock ").Until(pick(abandoned, l.RemoveAt, l.OverdueAt(c.Combined.Policy))).
		Say(pick(abandoned, ".", " at the latest."))
}

// onTimeText says that nothing is wrong with a lock: for its own page.
func (c *Input) onTimeText(l *locks.HeldLock) (s sentence) {
	if l.Shares > 1 {
		return s.Say(pick(l.Shares == 2, "Both", "All "+text.Thousands(l.Shares)) + " holders").And(c.ofLock(l)).
			Say(" are on time.")
	}
	return c.subject(l, false).Say(" is on time").And(c.aliveUnlessSilent(l, "and its ")).Say(".")
}

// aliveUnlessSilent is aliveText of a holder that reports as often as before; nil for any other.
func (c *Input) aliveUnlessSilent(l *locks.HeldLock, whose string) (s sentence) {
	if l.Shares > 1 || l.IsSilent(c.Now) {
		return nil
	}
	return s.Say(", ").And(aliveText(l, whose))
}
