package verdict

import (
	"slices"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// held says what is the matter with a lock that somebody holds, and what to do.
func (c *Cluster) held(l *Lock) (lead sentence, then []sentence, next Step) {
	switch l.Class {
	case Overdue:
		lead, next = c.overdue(l)
		then = []sentence{c.waits(l)}
	case Dead:
		lead = c.dead(l)
		then = []sentence{c.waits(l), c.leftBy(l)}
		next = Force
	case Silent:
		lead = c.silent(l)
		then = []sentence{c.waits(l), c.comes(l)}
		next = LookAtLock
	case Late:
		lead = c.late(l)
		then = []sentence{c.waits(l), c.comes(l)}
		next = GiveTime
	case Malformed:
		lead = c.malformed(l)
		then = []sentence{c.waits(l)}
		next = SeeProblems
	case Leaving:
		lead = c.leaving(l)
		then = []sentence{c.waits(l)}
	default:
		lead = c.inTime(l)
		then = []sentence{c.waits(l), c.alerts(l)}
		if !l.Judged.AlertsAtUnlock() || c.stays(l) != "" {
			then = append(then, c.comes(l))
		}
	}
	if l.Looked != nil {
		then = append(then, lookedAt(l.Looked))
	}
	return lead, then, next
}

// subject begins a sentence about a lock, or one about its holder.
func (c *Cluster) subject(l *Lock, holder bool) (s sentence) {
	switch {
	case l.Shares > 1:
		s.say("One of " + text.Thousands(l.Shares) + " holders of ")
	case holder:
		s.say("The holder of ")
	}
	s.lock(l.Name)
	c.in(&s)
	return s
}

func (c *Cluster) overdue(l *Lock) (s sentence, next Step) {
	s = c.subject(l, l.Judged.State == staleness.Abandoned)
	stays := c.stays(l)
	switch {
	case stays != "":
		s.say(" expired ")
		s.since(l.Judged.AutoUnlockAt)
		s.say(" ago and will not be removed: " + stays + ".")
		return s, Force
	case l.Judged.State == staleness.Abandoned:
		s.say(" is dead, and the lock should have been removed ")
	default:
		s.say(" should have been removed ")
	}
	s.since(l.Judged.OverdueAt(c.Fate.Policy))
	s.say(" ago")
	switch paused := c.paused(l); {
	case len(paused) > 0:
		s.say(": " + fate.Reasons(paused))
	case len(c.Fate.Silent) > 0:
		s.say(", but this is not certain: " + c.mum())
	}
	s.say(".")
	return s, ReadRunbook
}

func (c *Cluster) dead(l *Lock) (s sentence) {
	s = c.subject(l, true)
	s.say(" is dead: ")
	s.ended(l.Holder.Death)
	s.say(".")
	return s
}

func (c *Cluster) silent(l *Lock) (s sentence) {
	r := l.Holder
	s = c.subject(l, false)
	s.say(" is ")
	s.since(l.lateSince())
	if diagnosis.Suspected(r) {
		s.say(" late, and its holder may be dead: ")
		s.ended(r.Suspicion)
		s.say(" (suspected, not proven).")
		return s
	}
	if rhythm(r, l.Judged) == 0 {
		s.say(" late, and " + pick(l.Shares > 1, "has", "its holder has") + " never reported.")
		return s
	}
	s.say(" late, and " + pick(l.Shares > 1, "has", "its holder has") + " been silent for ")
	s.since(r.Alive.At)
	if every := diagnosis.Every(r); every > 0 {
		s.say(" (usually reports every " + text.Duration(every) + ")")
	}
	s.say(".")
	return s
}

func (c *Cluster) late(l *Lock) (s sentence) {
	s = c.subject(l, false)
	s.say(" is ")
	s.since(l.lateSince())
	s.say(" late, but ")
	s.lives(l, pick(l.Shares > 1, "", "its "))
	s.say(".")
	return s
}

// lives says what a holder's reports prove: with progress, that it works; without, that its process is alive. whose is
// "its ", "and its " or "whose "; empty for one of several holders.
func (s *sentence) lives(l *Lock, whose string) {
	r := l.Holder
	switch {
	case whose == "":
		s.say(pick(r.Alive.Progress == "", "is alive (", "is working ("))
	case r.Alive.Progress == "":
		s.say(whose + "process is alive (")
	default:
		s.say(whose + "holder is working (")
	}
	if r.Alive.Progress != "" {
		s.value(text.Clip(r.Alive.Progress, maxProgress))
		s.say(", ")
	}
	s.since(r.Alive.At)
	s.say(" ago)")
}

// maxProgress is how much of a progress a sentence has, in bytes.
const maxProgress = 80

func (c *Cluster) malformed(l *Lock) (s sentence) {
	r := l.Holder
	s = c.subject(l, false)
	about := ""
	switch {
	case r.Misplaced:
		s.say(" is at keys that belong to no lock")
	case r.Token == 0:
		s.say(" has no holder, only leftover keys")
	case l.Judged.AutoUnlockAt.IsZero():
		s.say(" never ends by itself")
		about = metadata.FieldAutoUnlockAt
	case l.Judged.AlertAt.IsZero():
		s.say(" never alerts")
		about = metadata.FieldAlertAt
	default:
		s.say(" is malformed")
	}
	if len(r.Problems) > 0 {
		s.say(": ")
		s.value(problem(r, about).String())
	}
	s.say(".")
	return s
}

// problem is what is wrong with a field of a record that has problems, or else the first of them.
func problem(r *metadata.Record, field string) metadata.Problem {
	i := slices.IndexFunc(r.Problems, func(p metadata.Problem) bool { return p.Field == field })
	return r.Problems[max(0, i)]
}

func (c *Cluster) leaving(l *Lock) (s sentence) {
	abandoned := l.Judged.State == staleness.Abandoned
	s = c.subject(l, abandoned)
	s.say(pick(abandoned, " is dead", " has expired"))
	if paused := c.paused(l); len(paused) > 0 {
		s.say("; auto-unlock is paused: " + fate.Reasons(paused) + ".")
		return s
	}
	s.say("; auto-unlock ")
	s.until(pick(abandoned, l.Judged.RemoveAt, l.Judged.OverdueAt(c.Fate.Policy)))
	s.say(pick(abandoned, ".", " at the latest."))
	return s
}

// inTime says of a lock alone that nothing is wrong with it.
func (c *Cluster) inTime(l *Lock) (s sentence) {
	if l.Shares > 1 {
		s.say(pick(l.Shares == 2, "Both", "All "+text.Thousands(l.Shares)) + " holders of ")
		s.lock(l.Name)
		c.in(&s)
		s.say(" are in time.")
		return s
	}
	s = c.subject(l, false)
	s.say(" is held in time")
	c.works(&s, l, "and its ")
	s.say(".")
	return s
}

// works adds what its reports prove of a holder, where they are as frequent as they were.
func (c *Cluster) works(s *sentence, l *Lock, whose string) {
	if l.Shares > 1 || silent(l.Holder, l.Judged, c.Now) {
		return
	}
	s.say(", ")
	s.lives(l, whose)
}
