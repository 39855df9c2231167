package verdict

import (
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func (c *Cluster) stale() (lead, seen sentence) {
	lead = lead.Say("etcd ")
	if c.Name != "" {
		lead = lead.Say("in ").Value(c.Name).Say(" ")
	}
	if c.Never {
		lead = lead.Say("has not answered yet")
		seen = seen.Say("Nothing is known about its locks.")
	} else {
		lead = lead.Say("has not answered for ").Since(c.Heard)
		seen = seen.Say("You see " + pick(c.Name != "", "its locks", "the locks") + " as of " +
			c.Heard.UTC().Format("15:04:05") + " UTC.")
	}
	if c.Why != "" {
		lead = lead.Say(": " + c.Why)
	}
	return lead.Say("."), seen
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
		of := pick(where == "", "", text.Visible(c.Name)+": ")
		return lead.Say(of + c.Alarm + ". No lock can be taken or extended."), "unlockeretcdalarm"
	case len(c.Running) == 0:
		return lead.Say("No unlocker is running" + where + ", or none can write to etcd: no lock is auto-unlocked."),
			"unlockerdown"
	case onlyBrake(paused):
		return lead.Say("Unlockers" + where + " are slowing down removals: " + fate.Reasons(paused) + "."),
			"unlockerremovalheldback"
	case len(paused) > 0:
		return lead.Say("Unlockers" + where + " are holding back removals: " + fate.Reasons(paused) + "."),
			"unlockerremovalheldback"
	}
	return lead.Say("Unlockers" + where + " disagree, so a lock's fate depends on which acts first: " +
		disagreements[0].String() + "."), "unlockersdisagree"
}

// heldBack returns the rules that hold back all removals, except the gap after a restart.
func (c *Cluster) heldBack() []string { return fate.Pause(c.Running, staleness.Gap) }

func onlyBrake(rules []string) bool { return len(rules) == 1 && rules[0] == string(staleness.Brake) }

// maxNamed is how many locks of a deadlock are named.
const maxNamed = 3

func (c *Cluster) deadlock(o *candidate) (lead, hedge sentence) {
	names := o.cycle.Locks()
	more := max(0, len(names)-maxNamed)
	names = names[:len(names)-more]
	lead = lead.Say("The holders of ")
	for i, name := range names {
		if i > 0 {
			lead = lead.Say(pick(i+1 == len(names) && more == 0, " and ", ", "))
		}
		lead = lead.Lock(name)
	}
	if more > 0 {
		lead = lead.Say(" and " + text.Thousands(more) + " more")
	}
	lead = lead.And(c.where())
	if o.cycle.Since.IsZero() {
		lead = lead.Say(" are waiting for each other.")
	} else {
		lead = lead.Say(" have been waiting for each other for ").Since(o.cycle.Since).Say(".")
	}
	return lead, hedge.Say("Unless they do several jobs at once, they are stuck until one gives up or loses a lock.")
}

func (c *Cluster) unclaimed(o *candidate) (lead sentence) {
	first := who(&o.free.First.Holder)
	if first == nil {
		first = first.Say("the first in line")
	}
	place := ", the only waiter,"
	if n := o.free.Waiters; n > 1 {
		place = ", first of " + text.Thousands(n) + " in line,"
	}
	lead = lead.Lock(o.free.Name).And(c.where()).Say(" is free, but ")
	return lead.And(first).Say(place + " has not taken it for ").Since(o.free.Since).Say(".")
}

// allIsWell says that nothing is wrong, how many hold and wait, and who waits longest.
func allIsWell(clusters []Cluster, o *candidate) (lead, then sentence) {
	held, waiters := 0, 0
	for i := range clusters {
		held += clusters[i].Held
		waiters += clusters[i].Waiting
	}
	lead = lead.Say("All is well: ")
	l := o.lock
	switch {
	case held == 0:
		return lead.Say("no locks are held."), nil
	case l == nil:
		return lead.Say(text.Thousands(held) + pick(held == 1, " lock", " locks") + ", no waiters."), nil
	}
	lead = lead.Say(text.Thousands(held) + pick(held == 1, " lock, ", " locks, ") + waiting(waiters))
	if !l.Longest.IsZero() {
		lead = lead.Say(pick(waiters == 1, " for ", ", the longest for ")).Since(l.Longest)
	}
	lead = lead.Say(" behind ").Lock(l.Name).And(o.in.where())
	return lead.And(o.in.works(l, "whose ")).Say("."), o.in.alerts(l)
}

// where is the cluster of a lock, where there are several.
func (c *Cluster) where() (s sentence) {
	if c.Name == "" {
		return nil
	}
	return s.Say(" in ").Value(c.Name)
}

// who names a process: its owner and its host; nil where neither is known.
func who(h *metadata.Holder) (s sentence) {
	if h.Owner != "" {
		s = s.Value(h.Owner)
	}
	if h.Hostname != "" {
		s = s.Say(pick(h.Owner != "", " on ", "")).Value(h.Hostname)
	}
	return s
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
