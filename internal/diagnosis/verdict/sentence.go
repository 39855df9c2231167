package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// sentence is what is said, as it grows.
type sentence diagnosis.Sentence

func (s *sentence) say(words string)  { *s = append(*s, diagnosis.Part{Text: words}) }
func (s *sentence) value(v string)    { *s = append(*s, diagnosis.Part{Value: v}) }
func (s *sentence) lock(name string)  { *s = append(*s, diagnosis.Part{Lock: name}) }
func (s *sentence) since(t time.Time) { *s = append(*s, diagnosis.Part{Since: t}) }
func (s *sentence) until(t time.Time) { *s = append(*s, diagnosis.Part{Until: t}) }
func (s sentence) done() (all diagnosis.Sentence) {
	return diagnosis.Sentence(s)
}

// join puts sentences one after the other, but those that say nothing.
func join(all []sentence) (joined sentence) {
	for _, one := range all {
		if len(one) == 0 {
			continue
		}
		if joined != nil {
			joined.say(" ")
		}
		joined = append(joined, one...)
	}
	return joined
}

// say is the verdict if this is what it is about.
func (o *candidate) say() Verdict {
	v := Verdict{Class: o.class, Cluster: o.in.Name}
	var lead sentence
	var then []sentence
	switch o.class {
	case Stale:
		lead, then = o.in.stale()
		v.Next = LookAtView
	case Unlockers:
		lead, v.unlockers = o.in.unlockers()
		v.Next = ReadRunbook
	case Deadlock:
		v.Lock = o.cycle.Locks()[0]
		lead, then = o.in.deadlock(o)
		v.Next = LookAtCycle
	case Unclaimed:
		v.Lock = o.free.Name
		lead = o.in.unclaimed(o)
		v.Next = LookAtLock
	default:
		if o.lock == nil {
			return v
		}
		v.Lock, v.Holder = o.lock.Name, o.lock.Holder
		lead, then, v.Next = o.in.held(o.lock)
	}
	v.Lead, v.Then = lead.done(), join(then).done()
	return v
}

func (c *Cluster) stale() (lead sentence, then []sentence) {
	lead.say("etcd ")
	if c.Name != "" {
		lead.say("of ")
		lead.value(c.Name)
		lead.say(" ")
	}
	if c.Never {
		lead.say("has not answered yet")
	} else {
		lead.say("has not answered for ")
		lead.since(c.Heard)
	}
	if c.Why != "" {
		lead.say(": " + c.Why)
	}
	lead.say(".")
	var seen sentence
	switch {
	case c.Never:
		seen.say("Nothing is known of its locks.")
	case c.Name != "":
		seen.say("What you see of its locks is from " + c.Heard.UTC().Format("15:04:05") + " UTC.")
	default:
		seen.say("What you see is from " + c.Heard.UTC().Format("15:04:05") + " UTC.")
	}
	return lead, []sentence{seen}
}

// unlockers says why nobody removes locks in time, and which alert is about it.
func (c *Cluster) unlockers() (lead sentence, alert string) {
	where := ""
	if c.Name != "" {
		where = " in " + text.Visible(c.Name)
	}
	disagreements := fate.Disagreements(c.Running)
	switch paused := c.heldBack(); {
	case len(c.Running) == 0:
		lead.say("No unlocker is running" + where + ", or none can write to etcd: nothing is removed.")
		return lead, "unlockerdown"
	case onlyBrake(paused):
		lead.say("Unlockers" + where + " slow removals down: " + fate.Reasons(paused) + ".")
		return lead, "unlockerremovalheldback"
	case len(paused) > 0:
		lead.say("Unlockers" + where + " hold back removals: " + fate.Reasons(paused) + ".")
		return lead, "unlockerremovalheldback"
	}
	lead.say("Unlockers" + where + " disagree, so chance decides what becomes of a lock: " +
		disagreements[0].String() + ".")
	return lead, "unlockersdisagree"
}

// heldBack are the rules that hold back all removals for longer than the moments after a restart.
func (c *Cluster) heldBack() (rules []string) {
	for _, rule := range fate.Pause(c.Running) {
		if rule != string(staleness.Gap) {
			rules = append(rules, rule)
		}
	}
	return rules
}

func onlyBrake(rules []string) bool { return len(rules) == 1 && rules[0] == string(staleness.Brake) }

// maxNamed is how many locks of a deadlock are named.
const maxNamed = 3

func (c *Cluster) deadlock(o *candidate) (lead sentence, then []sentence) {
	names := o.cycle.Locks()
	more := max(0, len(names)-maxNamed)
	names = names[:len(names)-more]
	lead.say("The holders of ")
	for i, name := range names {
		if i > 0 {
			lead.say(pick(i+1 == len(names) && more == 0, " and ", ", "))
		}
		lead.lock(name)
	}
	if more > 0 {
		lead.say(" and " + text.Thousands(more) + " more")
	}
	c.in(&lead)
	if o.cycle.Since.IsZero() {
		lead.say(" wait for each other.")
	} else {
		lead.say(" have waited for each other for ")
		lead.since(o.cycle.Since)
		lead.say(".")
	}
	var hedge sentence
	hedge.say("Unless they do several jobs at once, none of them goes on before one gives up or loses a lock.")
	return lead, []sentence{hedge}
}

// in adds the cluster of a lock, where there are several.
func (c *Cluster) in(s *sentence) {
	if c.Name != "" {
		s.say(" in ")
		s.value(c.Name)
	}
}

func (c *Cluster) unclaimed(o *candidate) (lead sentence) {
	first := &o.free.First
	lead.lock(o.free.Name)
	c.in(&lead)
	lead.say(" is free, but ")
	if first.Owner == "" && first.Hostname == "" {
		lead.say("the first in line")
	} else {
		lead.who(&first.Holder)
	}
	switch n := o.free.Waiters; {
	case n > 1:
		lead.say(", first of " + text.Thousands(n) + ",")
	default:
		lead.say(", who alone waits,")
	}
	lead.say(" has not taken it for ")
	lead.since(o.free.Since)
	lead.say(".")
	return lead
}

// who names a process: its owner and its host.
func (s *sentence) who(h *metadata.Holder) {
	if h.Owner != "" {
		s.value(h.Owner)
	}
	if h.Hostname != "" {
		s.say(pick(h.Owner != "", " on ", ""))
		s.value(h.Hostname)
	}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

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
		s.say(" ago and stays: " + stays + ".")
		return s, Force
	case l.Judged.State == staleness.Abandoned:
		s.say(" is dead, and it should have been unlocked ")
	default:
		s.say(" should have been removed ")
	}
	s.since(l.Judged.OverdueAt(c.Fate.Policy))
	s.say(" ago")
	switch paused := c.paused(l); {
	case len(paused) > 0:
		s.say(": " + fate.Reasons(paused))
	case len(c.Fate.Silent) > 0:
		s.say(", as far as is known: " + c.mum())
	}
	s.say(".")
	return s, ReadRunbook
}

// paused are the rules that keep unlockers from removing a lock that is due. A proof of death makes good for a gap and
// for a clock that cannot be trusted.
func (c *Cluster) paused(l *Lock) []string {
	return slices.DeleteFunc(slices.Clone(fate.Pause(c.Running)), func(rule string) bool {
		return l.Judged.State == staleness.Abandoned &&
			(rule == string(staleness.Gap) || rule == string(staleness.Clock))
	})
}

// stays says why no unlocker ever removes the lock; empty where one does.
func (c *Cluster) stays(l *Lock) string {
	switch {
	case c.Fate.Unlockers == 0:
		return "no unlocker is running"
	case !c.Fate.Removes:
		return "the unlockers only watch (" + text.Visible(c.Fate.Watching) + ")"
	case c.Fate.Excludes(l.Holder.Name):
		return "the unlockers exclude it by its name"
	}
	return ""
}

// leftBy says why a lock is left whose holder is dead.
func (c *Cluster) leftBy(l *Lock) (s sentence) {
	switch why := c.stays(l); {
	case why != "":
		s.say("Nobody unlocks it: " + why + ".")
	case !c.Fate.Known():
		s.say("Whether it is unlocked now is not known: " + c.mum() + ".")
	default:
		s.say("Unlockers only report it.")
	}
	return s
}

// mum says which unlockers do not say how they decide.
func (c *Cluster) mum() string {
	return fate.Names(c.Fate.Silent) + pick(len(c.Fate.Silent) == 1, " does not publish its policy",
		" do not publish their policy")
}

func (c *Cluster) dead(l *Lock) (s sentence) {
	s = c.subject(l, true)
	s.say(" is dead: ")
	s.ended(l.Holder.Death)
	s.say(".")
	return s
}

// ended says how a witness says that a holder ended.
func (s *sentence) ended(death *metadata.Statement) {
	what, how := protocol.WhatEnded(death)
	s.say(what)
	if at := protocol.EndedAt(death); !at.IsZero() {
		s.say(" ")
		s.since(at)
		s.say(" ago")
	}
	if how != "" {
		s.say(" " + how)
	}
}

func (c *Cluster) silent(l *Lock) (s sentence) {
	r := l.Holder
	s = c.subject(l, false)
	s.say(" is ")
	s.since(l.lateSince())
	if diagnosis.Suspected(r) {
		s.say(" late, and perhaps its holder is dead: ")
		s.ended(r.Suspicion)
		s.say(" (suspected, not proven).")
		return s
	}
	if rhythm(r, l.Judged) == 0 {
		s.say(" late, and " + pick(l.Shares > 1, "has", "its holder has") + " never reported.")
		return s
	}
	s.say(" late and silent for ")
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
	s.say(" late, ")
	s.lives(l, pick(l.Shares > 1, "", "its "))
	s.say(".")
	return s
}

// lives says what a holder proves by its reports: that it works where it reports progress, and otherwise that its
// process lives. whose is "its " or "whose "; empty for one of several.
func (s *sentence) lives(l *Lock, whose string) {
	r := l.Holder
	switch {
	case whose == "":
		s.say(pick(r.Alive.Progress == "", "and lives (", "and works ("))
	case r.Alive.Progress == "":
		s.say(whose + "process lives (")
	default:
		s.say(whose + "holder works (")
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
		s.say(" lies at the keys of no lock")
	case r.Token == 0:
		s.say(" has no holder, but keys of a record")
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
		s.say(", and auto-unlock is paused: " + fate.Reasons(paused) + ".")
		return s
	}
	s.say(", and it goes by itself: auto-unlock ")
	s.until(pick(abandoned, l.Judged.RemoveAt, l.Judged.OverdueAt(c.Fate.Policy)))
	s.say(".")
	return s
}

// inTime says of a lock alone that nothing is wrong with it.
func (c *Cluster) inTime(l *Lock) (s sentence) {
	if l.Shares > 1 {
		s.say("All " + text.Thousands(l.Shares) + " holders of ")
		s.lock(l.Name)
		c.in(&s)
		s.say(" are in time.")
		return s
	}
	s = c.subject(l, false)
	s.say(" is held in time")
	c.works(&s, l, "its ")
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

// alerts says when people are alerted about a lock that is held in time.
func (c *Cluster) alerts(l *Lock) (s sentence) {
	v := &l.Judged
	switch {
	case v.AlertAt.IsZero():
		s.say("It never alerts.")
		return s
	case !v.AlertsAtUnlock():
		s.say("Alert ")
	case staleness.KeptAlive(l.Holder):
		s.say("If it falls silent, alert " + pick(c.stays(l) == "", "and auto-unlock ", ""))
	default:
		s.say("Alert " + pick(c.stays(l) == "", "and auto-unlock ", ""))
	}
	s.until(v.AlertAt)
	s.say(".")
	return s
}

// waits says who waits for a lock.
func (c *Cluster) waits(l *Lock) (s sentence) {
	if l.Waiters == 0 {
		return nil
	}
	s.say(waiting(l.Waiters))
	if !l.Longest.IsZero() {
		s.say(pick(l.Waiters == 1, " for ", ", the longest for "))
		s.since(l.Longest)
	}
	s.say(".")
	return s
}

// waiting is "1 waits" or "2 wait".
func waiting(n int) string { return text.Thousands(n) + pick(n == 1, " waits", " wait") }

// comes says when an unlocker ends a lock that alerts, or why none does.
func (c *Cluster) comes(l *Lock) (s sentence) {
	at := earlier(l.Judged.AutoUnlockAt, l.Judged.RemoveAt)
	paused := fate.Pause(c.Running)
	switch why := c.stays(l); {
	case at.IsZero():
		s.say("It never unlocks by itself.")
	case why != "":
		s.say("No auto-unlock: " + why + ".")
	case onlyBrake(paused):
		s.say("Auto-unlock is slowed down: " + fate.Reasons(paused) + ".")
	case len(paused) > 0:
		s.say("Auto-unlock is paused: " + fate.Reasons(paused) + ".")
	default:
		s.say("Auto-unlock ")
		s.until(at)
		s.say(".")
	}
	return s
}

// lookedAt says who looks at a lock, and until when.
func lookedAt(a *metadata.Acknowledgement) (s sentence) {
	s.value(cmp.Or(a.By, "somebody"))
	s.say(" looks at it until " + a.Until.UTC().Format("15:04") + " UTC.")
	return s
}

// allIsWell says that nothing is wrong, how many hold and wait, and who waits longest.
func allIsWell(clusters []Cluster, o *candidate) (lead, then diagnosis.Sentence) {
	held, waiters := 0, 0
	for i := range clusters {
		held += clusters[i].Held
		waiters += clusters[i].Waiting
	}
	var s sentence
	s.say("All is well: ")
	switch {
	case held == 0:
		s.say("no locks are held.")
		return s.done(), nil
	case o.lock == nil:
		s.say(text.Thousands(held) + pick(held == 1, " lock", " locks") + ", nobody waits.")
		return s.done(), nil
	}
	l := o.lock
	s.say(text.Thousands(held) + pick(held == 1, " lock, ", " locks, ") + waiting(waiters))
	if !l.Longest.IsZero() {
		s.say(pick(waiters == 1, " for ", ", the longest for "))
		s.since(l.Longest)
	}
	s.say(" behind ")
	s.lock(l.Name)
	o.in.in(&s)
	o.in.works(&s, l, "whose ")
	s.say(".")
	return s.done(), join([]sentence{o.in.alerts(l)}).done()
}
