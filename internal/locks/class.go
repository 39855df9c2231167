package locks

import (
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Class ranks what can be wrong, most urgent first. The headline is about the first class that is not empty.
type Class uint8

// The classes, in that order.
const (
	ClassStale     Class = iota + 1 // the view is not current
	ClassUnlockers                  // none runs, or those that do cannot be relied on
	ClassDeadlock                   // processes wait for each other
	ClassUnclaimed                  // free, and the first in line does not take it
	ClassOverdue                    // past its deadline, and should have been removed by now
	ClassDead                       // its holder has ended, and nobody removes it
	ClassSilent                     // past its alert, and nothing is heard of its holder
	ClassLate                       // past its alert, and its holder lives
	ClassMalformed                  // a field is missing or cannot be read, or more is held than the lock allows
	ClassLeaving                    // dead, expired or expiring, and removed by itself within moments
	ClassOnTime                     // nothing is wrong
	ClassLeased                     // of another library; what is wrong is not known
)

// Classes returns all classes of our locks, in their order.
func Classes() []Class {
	return []Class{ClassStale, ClassUnlockers, ClassDeadlock, ClassUnclaimed, ClassOverdue, ClassDead, ClassSilent,
		ClassLate, ClassMalformed, ClassLeaving, ClassOnTime}
}

// String returns the word for the class: in JSON, in counts, and in the style sheet.
func (c Class) String() string {
	return [...]string{"", "stale", "unlockers", "deadlock", "unclaimed", "overdue", "dead", "silent", "late",
		"malformed", "leaving", "on_time", "leased"}[c]
}

// Severity returns how bad a class is: system, bad, alerting, warn or calm.
func (c Class) Severity() string {
	switch {
	case c <= ClassUnlockers:
		return "system"
	case c <= ClassDead:
		return "bad"
	case c <= ClassLate:
		return "alerting"
	case c == ClassMalformed:
		return "warn"
	}
	return "calm"
}

// Section is a part of the list: what the locks in it ask of a person.
type Section uint8

// The sections, in their order.
const (
	NeedsYou Section = iota
	ResolvesItself
	OnTime
	OfOthers
)

// Section returns the section of the locks in a class.
func (c Class) Section() Section {
	switch {
	case c < ClassLeaving:
		return NeedsYou
	case c == ClassLeaving:
		return ResolvesItself
	case c == ClassLeased:
		return OfOthers
	}
	return OnTime
}

// StateIn returns the word for a hold in a class: that of the class if the record alone does not say it, else the
// state.
func (r *Row) StateIn(c Class) metadata.State {
	if c == ClassDeadlock || c == ClassMalformed {
		return metadata.State(c.String())
	}
	return r.Display
}

// ClassAt returns the class of the hold at now, if its state is still the judged one: [ClassOverdue] or a later one.
func (r *Row) ClassAt(policy *diagnosis.CombinedPolicy, now time.Time) Class {
	switch r.State {
	case metadata.StateAlerting:
		if r.IsSilent(now) {
			return ClassSilent
		}
		return ClassLate
	case metadata.StateMalformed:
		return ClassMalformed
	case metadata.StateHeld:
		if r.Inconsistent != "" {
			return ClassMalformed
		}
	case metadata.StateAbandoned, metadata.StateExpired:
		by := r.removedBy(policy)
		switch {
		case !by.IsZero() && now.Before(by):
			return ClassLeaving
		case by.IsZero() && r.State == metadata.StateAbandoned:
			return ClassDead
		}
		return ClassOverdue
	}
	return ClassOnTime
}

// NextClassChange returns when the class of the hold changes by time alone, before its state does; zero = never.
func (r *Row) NextClassChange(policy *diagnosis.CombinedPolicy, now time.Time) (at time.Time) {
	switch r.State {
	case metadata.StateAlerting:
		if rhythm := r.Rhythm(); rhythm > 0 {
			at = r.Alive.At.Add(silentTimes*rhythm + 1)
		}
	case metadata.StateAbandoned, metadata.StateExpired:
		at = r.removedBy(policy)
	}
	if !at.After(now) {
		return time.Time{}
	}
	return at
}

// removedBy returns by when unlockers remove the lock in its judged state; zero = never.
func (r *Row) removedBy(policy *diagnosis.CombinedPolicy) time.Time {
	by := r.OverdueAt(policy.Policy)
	if by.IsZero() || !policy.MayRemove(r.Name) {
		return time.Time{}
	}
	return by
}

// silentTimes is how many times its rhythm a holder may be silent before it counts as silent.
const silentTimes = 3

// Rhythm returns the interval between the holder's reports: on average so far, or as its last report promised;
// 0 = unknown, because it never reported.
func (r *Row) Rhythm() time.Duration {
	if r.Alive == nil || r.Alive.At.IsZero() || r.Alive.At.Before(r.LockedAt) { // of another hold, or another clock
		return 0
	}
	if every := diagnosis.ReportInterval(r.Record); every > 0 {
		return every
	}
	promised := r.DueAlert
	if promised.IsZero() || !promised.After(r.Alive.At) {
		promised = r.ExpiresAt
	}
	return max(0, promised.Sub(r.Alive.At))
}

// IsSilent reports whether the holder has been silent for so long that it may be gone, or a witness suspects that it
// is.
func (r *Row) IsSilent(now time.Time) bool {
	rhythm := r.Rhythm()
	return rhythm == 0 || now.Sub(r.Alive.At) > silentTimes*rhythm || diagnosis.IsSuspected(r.Record)
}
