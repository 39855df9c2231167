package locks

import (
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
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
	ClassMalformed                  // a field that the protocol acts on is missing or cannot be read
	ClassLeaving                    // dead or expired, and removed by itself within moments
	ClassCalm                       // nothing is wrong
)

// Classes returns all classes, in their order.
func Classes() []Class {
	return []Class{ClassStale, ClassUnlockers, ClassDeadlock, ClassUnclaimed, ClassOverdue, ClassDead, ClassSilent,
		ClassLate, ClassMalformed, ClassLeaving, ClassCalm}
}

// String is the word for the class: in JSON, in counts, and in the style sheet.
func (c Class) String() string {
	return [...]string{"", "stale", "unlockers", "deadlock", "unclaimed", "overdue", "dead", "silent", "late",
		"malformed", "leaving", "calm"}[c]
}

// Severity is how bad a class is: system, bad, alerting, warn or calm.
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

// ClassOf is the class of a hold, as it was judged at now: [ClassOverdue] or a later one.
func ClassOf(r *metadata.Record, judged staleness.Verdict, f *diagnosis.CombinedPolicy, now time.Time) Class {
	switch judged.State {
	case staleness.Alerting:
		if silent(r, judged, now) {
			return ClassSilent
		}
		return ClassLate
	case staleness.Malformed:
		return ClassMalformed
	case staleness.Abandoned, staleness.Expired:
		by := removedBy(r, judged, f)
		switch {
		case !by.IsZero() && now.Before(by):
			return ClassLeaving
		case by.IsZero() && judged.State == staleness.Abandoned:
			return ClassDead
		}
		return ClassOverdue
	}
	return ClassCalm
}

// NextClassChange is when the class of a hold will change by time alone, before its state does; zero = it will not.
func NextClassChange(r *metadata.Record, judged staleness.Verdict, f *diagnosis.CombinedPolicy,
	now time.Time) (at time.Time) {
	switch judged.State {
	case staleness.Alerting:
		if rhythm := rhythm(r, judged); rhythm > 0 {
			at = r.Alive.At.Add(silentTimes*rhythm + 1)
		}
	case staleness.Abandoned, staleness.Expired:
		at = removedBy(r, judged, f)
	}
	if !at.After(now) {
		return time.Time{}
	}
	return at
}

// removedBy is by when unlockers remove a lock in its current state; zero = never.
func removedBy(r *metadata.Record, judged staleness.Verdict, f *diagnosis.CombinedPolicy) time.Time {
	by := judged.OverdueAt(f.Policy)
	if by.IsZero() || !f.Removes || f.Excludes(r.Name) {
		return time.Time{}
	}
	return by
}

// silentTimes is how many times its rhythm a holder may be silent before it counts as silent.
const silentTimes = 3

// Rhythm is how often the holder reports: on average so far, or as its last report promised; 0 = unknown, because it
// never reported.
func (r *Row) Rhythm() time.Duration { return rhythm(r.Record, r.verdict) }

// IsSilent reports whether the holder has been silent for so long that it may be gone, or a witness suspects that it
// is.
func (r *Row) IsSilent(now time.Time) bool { return silent(r.Record, r.verdict, now) }

func rhythm(r *metadata.Record, judged staleness.Verdict) time.Duration {
	if r.Alive == nil || r.Alive.At.IsZero() || r.Alive.At.Before(r.LockedAt) { // of another hold, or another clock
		return 0
	}
	if every := diagnosis.Every(r); every > 0 {
		return every
	}
	promised := judged.AlertAt
	if promised.IsZero() || !promised.After(r.Alive.At) {
		promised = judged.AutoUnlockAt
	}
	return max(0, promised.Sub(r.Alive.At))
}

func silent(r *metadata.Record, judged staleness.Verdict, now time.Time) bool {
	rhythm := rhythm(r, judged)
	return rhythm == 0 || now.Sub(r.Alive.At) > silentTimes*rhythm || diagnosis.Suspected(r)
}
