package verdict

import (
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func (c *Cluster) stale() (lead sentence, then []sentence) {
	lead.say("etcd ")
	if c.Name != "" {
		lead.say("in ")
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
	if c.Never {
		seen.say("Nothing is known about its locks.")
	} else {
		seen.say("You see " + pick(c.Name != "", "its locks", "the locks") + " as of " +
			c.Heard.UTC().Format("15:04:05") + " UTC.")
	}
	return lead, []sentence{seen}
}

// unlockers says why locks are not removed in time, and which alert is about it.
func (c *Cluster) unlockers() (lead sentence, alert string) {
	where := ""
	if c.Name != "" {
		where = " in " + text.Visible(c.Name)
	}
	disagreements := fate.Disagreements(c.Running)
	switch paused := c.heldBack(); {
	case c.Alarm != "":
		lead.say(pick(where == "", "", text.Visible(c.Name)+": ") + c.Alarm + ". No lock can be taken or extended.")
		return lead, "unlockeretcdalarm"
	case len(c.Running) == 0:
		lead.say("No unlocker is running" + where + ", or none can write to etcd: no lock is auto-unlocked.")
		return lead, "unlockerdown"
	case onlyBrake(paused):
		lead.say("Unlockers" + where + " are slowing down removals: " + fate.Reasons(paused) + ".")
		return lead, "unlockerremovalheldback"
	case len(paused) > 0:
		lead.say("Unlockers" + where + " are holding back removals: " + fate.Reasons(paused) + ".")
		return lead, "unlockerremovalheldback"
	}
	lead.say("Unlockers" + where + " disagree, so a lock's fate depends on which acts first: " +
		disagreements[0].String() + ".")
	return lead, "unlockersdisagree"
}

// heldBack returns the rules that hold back all removals, except the gap after a restart.
func (c *Cluster) heldBack() []string { return fate.Pause(c.Running, staleness.Gap) }

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
		lead.say(" are waiting for each other.")
	} else {
		lead.say(" have been waiting for each other for ")
		lead.since(o.cycle.Since)
		lead.say(".")
	}
	var hedge sentence
	hedge.say("Unless they do several jobs at once, they are stuck until one gives up or loses a lock.")
	return lead, []sentence{hedge}
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
		lead.say(", first of " + text.Thousands(n) + " in line,")
	default:
		lead.say(", the only waiter,")
	}
	lead.say(" has not taken it for ")
	lead.since(o.free.Since)
	lead.say(".")
	return lead
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
		s.say(text.Thousands(held) + pick(held == 1, " lock", " locks") + ", no waiters.")
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
