package cli

import (
	"fmt"
	"math"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// dueNotes returns how many locks are due, and why the unlockers do not remove them.
func (all *snapshot) dueNotes(due int, p staleness.Policy) []string {
	abandoned := ""
	if p.UnlockAbandoned {
		abandoned = ", or abandoned"
	}
	notes := []string{fmt.Sprintf("%d of %s due (more than %v past the deadline%s)", due,
		text.Count(len(all.view.Locks()), "lock"), p.ClockSkew, abandoned)}
	if rules := diagnosis.HeldBackBy(all.unlockers); due > 0 && rules != nil {
		notes = append(notes, "auto-unlock is paused: "+diagnosis.RuleTexts(rules))
	}
	return notes
}

// policy returns the policy of the unlockers. If it is unknown, it says so and returns the default.
func (o *listOptions) policy(f *diagnosis.CombinedPolicy) staleness.Policy {
	switch {
	case f.Known():
		return f.Policy
	case f.Unlockers > 0:
		fmt.Fprintf(o.app.Stderr, "how the unlockers decide is unknown: %s; this is the default\n", f.WhyUnknown())
	}
	if f.Policy.MinWarning > 0 { // of those that publish it
		return f.Policy
	}
	return staleness.DefaultPolicy()
}

// isDue reports whether an ideal unlocker would remove the lock: one that has always watched it, and that no rule holds
// back.
func isDue(r *metadata.Record, p staleness.Policy, now time.Time) bool {
	p.DefaultAutoUnlockAfter = 0 // counted from when an unlocker saw the lock, which is not known here
	ideal := staleness.Conditions{LastGap: math.MinInt64, Writable: true, Fresh: true,
		WallClock:     staleness.ClockVerified,
		NeverWentBack: true}
	watched := *asSeen(r, now)
	watched.Seen = metadata.Seen{First: math.MinInt64, Changed: math.MinInt64}
	return staleness.Decide(&watched, p, ideal, staleness.Moment{Wall: now}).HeldBack == ""
}
