package headline

import (
	"cmp"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// paused returns the rules that keep unlockers from removing a lock that is due, except those in but. A proof of death
// overrides a gap and the clock.
func (c *Input) paused(l *locks.HeldLock, but ...staleness.Rule) []string {
	if l.State == metadata.StateAbandoned {
		but = append(but, staleness.RuleGap, staleness.RuleClock, staleness.RuleUnverified)
	}
	return diagnosis.HeldBackBy(c.Running, but...)
}

// WhyNeverRemoved returns why no unlocker ever removes the lock; empty where one does.
func (c *Input) WhyNeverRemoved(l *locks.HeldLock) string {
	switch {
	case c.Combined.Unlockers == 0:
		return "no unlocker is running"
	case !c.Combined.Removes:
		return "the unlockers only watch (" + text.Visible(c.Combined.Watching) + ")"
	case c.Combined.Excludes(l.Name):
		return "the unlockers exclude it by name"
	}
	return ""
}

// WhyNotRemoved returns why no unlocker removes the lock once it is due: never, or not while auto-unlock is paused;
// empty where one does.
func (c *Input) WhyNotRemoved(l *locks.HeldLock) string {
	paused := c.paused(l, staleness.RuleUnverified)
	if never := c.WhyNeverRemoved(l); never != "" || len(paused) == 0 {
		return never
	}
	return "paused: " + diagnosis.RuleTexts(paused)
}

func (c *Input) whyDeadRemains(l *locks.HeldLock) (s sentence) {
	switch why := c.WhyNeverRemoved(l); {
	case why != "":
		return s.Say("No auto-unlock: " + why + ".")
	case !c.Combined.IsKnown():
		return s.Say("Whether it will be unlocked is unknown: " + c.Combined.WhyUnknown() + ".")
	case l.ExpiresAt.IsZero():
		return s.Say("Unlockers only report it.")
	}
	return s.Say("Unlockers only report it until its deadline: auto-unlock ").Until(l.ExpiresAt).Say(".")
}

// alertText returns when people are alerted about a lock that is held in time.
func (c *Input) alertText(l *locks.HeldLock) (s sentence) {
	both := pick(c.WhyNeverRemoved(l) == "", "and auto-unlock ", "")
	switch {
	case l.DueAlert.IsZero():
		return s.Say("It never alerts.")
	case !l.AlertsAtUnlock():
		s = s.Say("Alert ")
	case staleness.KeptAlive(l.Record) || !l.HeartbeatUntil.IsZero():
		s = s.Say("If it falls silent, alert " + both)
	default:
		s = s.Say("Alert " + both)
	}
	return s.Until(l.DueAlert).Say(".")
}

func (c *Input) waitersText(l *locks.HeldLock) (s sentence) {
	if l.Waiters == 0 {
		return nil
	}
	s = s.Say(waiting(l.Waiters))
	if !l.Longest.IsZero() {
		s = s.Say(pick(l.Waiters == 1, " for ", ", the longest for ")).Since(l.Longest)
	}
	return s.Say(".")
}

func waiting(n int) string { return text.Thousands(n) + " waiting" }

// autoUnlockText returns when an unlocker ends a lock that alerts, or why none does.
func (c *Input) autoUnlockText(l *locks.HeldLock) (s sentence) {
	at := l.DueUnlock()
	paused := diagnosis.HeldBackBy(c.Running, staleness.RuleUnverified)
	switch why := c.WhyNeverRemoved(l); {
	case at.IsZero():
		return s.Say("It is never auto-unlocked.")
	case why != "":
		return s.Say("No auto-unlock: " + why + ".")
	case onlyBrake(paused):
		return s.Say("Auto-unlock is slowed down: " + diagnosis.RuleTexts(paused) + ".")
	case len(paused) > 0:
		return s.Say("Auto-unlock is paused: " + diagnosis.RuleTexts(paused) + ".")
	case l.Class == locks.ClassLate: // its reports extend it
		s = s.Say("If it falls silent, auto-unlock ")
	default:
		s = s.Say("Auto-unlock ")
	}
	return s.Until(at).Say(".")
}

// AutoUnlock returns in a few words when unlockers end a lock unless it changes, and why they do not yet.
func (c *Input) AutoUnlock(l *locks.HeldLock) (when, why sentence) {
	at := l.DueUnlock()
	whyNot := c.WhyNotRemoved(l)
	heartbeats := HeartbeatsExtend(l.Row, c.Now)
	switch {
	case at.IsZero():
		return when.Say("never"), why.Say("it has no readable deadline")
	case whyNot != "":
		return when.Say("no"), why.Say(whyNot)
	case heartbeats != "":
		return when.Say("no"), why.Say(heartbeats)
	case isReporting(l.Row, c.Now) && l.HeartbeatUntil.Sub(l.AutoUnlockAt).Abs() > time.Second:
		return when.Say("no"), why.Say("its reports extend it; without them ").Until(at)
	}
	return when.Until(at), nil
}

// HeartbeatsExtend returns until when heartbeats extend a lock; empty if the record does not say, or they do not.
func HeartbeatsExtend(r *locks.Row, now time.Time) string {
	until := r.HeartbeatUntil
	if !isReporting(r, now) || until.Sub(r.AutoUnlockAt) <= time.Second {
		return ""
	}
	layout := "Mon 15:04"
	if until.Sub(now) > 6*24*time.Hour {
		layout = "2006-01-02 15:04"
	}
	return "heartbeats extend it until " + until.UTC().Format(layout) + " UTC"
}

// isReporting reports whether the holder is alive and reports in time, as far as is known.
func isReporting(r *locks.Row, now time.Time) bool {
	return r.State != metadata.StateExpired && !r.ProvenDead() && !r.IsSilent(now)
}

// acknowledgedText returns who looks at a lock, and until when; nil where nobody does.
func acknowledgedText(a *metadata.Acknowledgement) (s sentence) {
	if a == nil {
		return nil
	}
	return s.Value(cmp.Or(a.By, "somebody")).Say(" is looking at it until " + a.Until.UTC().Format("15:04") + " UTC.")
}
