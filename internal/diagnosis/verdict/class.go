// Package verdict decides which lock needs a person first, why, and what to do: one decision table, whose sentence
// page, command line and API say alike. docs/adr/0029-a-table-decides-the-sentence.md has the table and its reasons.
package verdict

import (
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Class is why a person should hear of something. The first class that is not empty is what the sentence is about.
type Class uint8

// The classes, in that order.
const (
	Stale     Class = iota + 1 // the view is not current
	Unlockers                  // none runs, or those that do cannot be relied on
	Deadlock                   // processes wait for each other
	Unclaimed                  // free, and the first in line does not take it
	Overdue                    // past its deadline, and not removed by the time that nothing but trouble explains
	Dead                       // its holder has ended, and nobody removes it
	Silent                     // past its alert, and nothing is heard of its holder
	Late                       // past its alert, and its holder lives
	Malformed                  // a field that the protocol acts on is missing or cannot be read
	Leaving                    // dead or expired, and removed by itself within moments
	Calm                       // nothing is wrong
)

// Classes returns all classes, in their order.
func Classes() []Class {
	return []Class{Stale, Unlockers, Deadlock, Unclaimed, Overdue, Dead, Silent, Late, Malformed, Leaving, Calm}
}

// String is the word for the class: in JSON, in counts, and in the style sheet.
func (c Class) String() string {
	return [...]string{"", "stale", "unlockers", "deadlock", "unclaimed", "overdue", "dead", "silent", "late",
		"malformed", "leaving", "calm"}[c]
}

// Severity is how bad a class is: system, bad, alerting, warn or calm.
func (c Class) Severity() string {
	switch {
	case c <= Unlockers:
		return "system"
	case c <= Dead:
		return "bad"
	case c <= Late:
		return "alerting"
	case c == Malformed:
		return "warn"
	}
	return "calm"
}

// ClassOf is the class of a hold, as it was judged at now: [Overdue] or a later one.
func ClassOf(r *metadata.Record, judged staleness.Verdict, f *diagnosis.CombinedPolicy, now time.Time) Class {
	switch judged.State {
	case staleness.Alerting:
		if silent(r, judged, now) {
			return Silent
		}
		return Late
	case staleness.Malformed:
		return Malformed
	case staleness.Abandoned, staleness.Expired:
		by := removedBy(r, judged, f)
		switch {
		case !by.IsZero() && now.Before(by):
			return Leaving
		case by.IsZero() && judged.State == staleness.Abandoned:
			return Dead
		}
		return Overdue
	}
	return Calm
}

// Turns is when the class of a hold will change by time alone, before its state does; zero = it will not.
func Turns(r *metadata.Record, judged staleness.Verdict, f *diagnosis.CombinedPolicy, now time.Time) (at time.Time) {
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

// rhythm is how often the holder reports: on average so far, or as its last report promised; 0 = unknown, because it
// never reported.
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

// silent reports whether the holder has been silent for so long that it may be gone, or a witness suspects that it is.
func silent(r *metadata.Record, judged staleness.Verdict, now time.Time) bool {
	rhythm := rhythm(r, judged)
	return rhythm == 0 || now.Sub(r.Alive.At) > silentTimes*rhythm || diagnosis.Suspected(r)
}
