package headline

import (
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func (c *Input) stale() Headline {
	v := Headline{Class: locks.ClassStale, Steps: []Step{{Kind: LookAtView}}}
	v.Summary = v.Summary.Say("etcd has not answered for ").Since(c.SilentSince)
	v.Details = v.Details.Say("You see the locks as of " + c.SilentSince.UTC().Format("15:04:05") + " UTC.")
	if c.SilenceCause != "" {
		v.Summary = v.Summary.Say(": " + c.SilenceCause)
	}
	v.Summary = v.Summary.Say(".")
	return v
}

func (c *Input) unlockers() Headline {
	v := Headline{Class: locks.ClassUnlockers, Steps: []Step{{Kind: ReadRunbook}}}
	say := func(alert, words string) Headline {
		v.unlockerAlert = alert
		v.Summary = v.Summary.Say(words + ".")
		return v
	}
	switch paused := c.heldBack(); {
	case c.Alarm != "":
		return say("unlockeretcdalarm", c.Alarm+". No lock can be taken or extended")
	case len(c.Running) == 0:
		return say("unlockerdown", "No unlocker is running, or none can write to etcd: no lock is auto-unlocked")
	case onlyBrake(paused):
		return say("unlockerremovalheldback", "Unlockers are slowing down removals: "+diagnosis.RuleTexts(paused))
	case len(paused) > 0:
		return say("unlockerremovalheldback", "Auto-unlock is paused: "+diagnosis.RuleTexts(paused))
	}
	return say("unlockersdisagree", "Unlockers disagree, so a lock's fate depends on which acts first: "+
		diagnosis.Disagreements(c.Running)[0])
}

// heldBack returns the rules that hold back all removals, except the gap after a restart.
func (c *Input) heldBack() []string {
	return diagnosis.HeldBackBy(c.Running, staleness.RuleGap, staleness.RuleUnverified)
}

func onlyBrake(rules []string) bool {
	return len(rules) == 1 && rules[0] == string(staleness.RuleBrake)
}

// maxNamed is how many locks of a deadlock are named.
const maxNamed = 3

func (c *Input) deadlock(cycle *deadlock.Cycle) Headline {
	names := cycle.Locks()
	v := Headline{Class: locks.ClassDeadlock, Lock: names[0], Steps: showStep(LookAtCycle, names[0])}
	more := max(0, len(names)-maxNamed)
	names = names[:len(names)-more]
	alone := len(cycle.Processes()) == 1
	summary := sentence{}.Say(pick(alone, "The holder of ", "The holders of "))
	for i, name := range names {
		if i > 0 {
			summary = summary.Say(pick(i+1 == len(names) && more == 0, " and ", ", "))
		}
		summary = summary.Lock(name)
	}
	if more > 0 {
		summary = summary.Say(" and " + text.Thousands(more) + " more")
	}
	if cycle.Since.IsZero() {
		v.Summary = summary.Say(pick(alone, " waits for itself.", " are waiting for each other."))
	} else {
		v.Summary = summary.Say(pick(alone, " has been waiting for itself for ",
			" have been waiting for each other for ")).
			Since(cycle.Since).Say(".")
	}
	if alone {
		v.Details = v.Details.Say("A command that it runs waits for this lock and will never get it: end the command.")
		return v
	}
	v.Details = v.Details.Say("Unless they work on several things at once, they are stuck until one gives up or " +
		"loses a lock: end the one whose work is cheapest to lose.")
	return v
}

func (c *Input) unclaimed(free *diagnosis.Unclaimed) Headline {
	first := processText(&free.First.Identity)
	if first == nil {
		first = first.Say("the first in line")
	}
	place := ", the only waiter,"
	if n := free.Waiters; n > 1 {
		place = ", first of " + text.Thousands(n) + " in line,"
	}
	summary := c.name(free.Name).Say(" is free, but ").And(first).
		Say(place + " has not taken it for ").Since(free.Since).Say(".")
	return Headline{Class: locks.ClassUnclaimed, Lock: free.Name, Summary: summary,
		Steps: showStep(LookAtLock, free.Name)}
}

// allIsWell says that nothing is wrong, how many hold and wait, and who waits longest: for l, which is nil if nobody
// waits.
func (c *Input) allIsWell(l *locks.HeldLock) Headline {
	summary := sentence{}
	if len(c.Inconsistent) == 0 {
		summary = summary.Say("All is well: ")
	}
	if c.Held == 0 {
		said := pick(c.Leased > 0, "only other libraries hold locks.", "no locks are held.")
		return Headline{Class: locks.ClassOnTime, Summary: summary.Say(said)}
	}
	summary = summary.Say(text.Thousands(c.Held) + pick(c.Held == 1, " lock, ", " locks, "))
	if l == nil {
		summary = summary.Say(pick(c.Waiting == 0, "no waiters.", waiting(c.Waiting)+"."))
		return Headline{Class: locks.ClassOnTime, Summary: summary}
	}
	v := c.forHeldLock(l)
	summary = summary.Say(waiting(c.Waiting))
	if !l.Longest.IsZero() {
		summary = summary.Say(pick(c.Waiting == 1, " for ", ", the longest for ")).Since(l.Longest)
	}
	v.Summary = summary.Say(" behind ").Lock(l.Lock).And(c.aliveUnlessSilent(l, "whose ")).Say(".")
	v.Details = c.alertText(l)
	return v
}

// processText names the owner and host of a process; nil if neither is known.
func processText(h *metadata.Identity) (s sentence) {
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
