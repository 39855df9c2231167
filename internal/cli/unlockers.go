package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
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
	case f.IsKnown():
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

// maxUnlockers is how many presence records are checked: more than any installation runs.
const maxUnlockers = 100

// unlockers reads which unlockers are running: those whose presence has a lease that cannot outlive them for long.
func (s *session) unlockers(ctx context.Context) (running []metadata.Presence, err error) {
	request, cancel := s.request(ctx)
	defer cancel()
	var announced []metadata.Presence
	var leases []int64
	_, err = s.store.ListPrefix(request, s.layout.Unlockers(), 0, func(kv protocol.KV) {
		p := protocol.DecodePresence(s.layout.Parse(kv.Key).ID, kv.Value, kv.Lease)
		if p != nil && len(announced) < maxUnlockers {
			announced = append(announced, *p)
			leases = append(leases, kv.Lease)
		}
	})
	for i := range announced {
		var granted time.Duration
		if err == nil {
			granted, err = s.store.LeaseTTL(ctx, leases[i]) // which has a time limit of its own
		}
		if 0 < granted && granted <= protocol.PresenceTTL {
			running = append(running, announced[i])
		}
	}
	if err != nil {
		return nil, s.explain(ctx, "read the unlockers", err)
	}
	return running, nil
}

// combined reads how the unlockers treat stale locks, for commands that read one lock.
func (s *session) combined(ctx context.Context) (diagnosis.CombinedPolicy, error) {
	running, err := s.unlockers(ctx)
	return diagnosis.CombinePolicies(running), err
}

// withoutDefaults returns the policy without its defaults for records that have no readable deadlines. They count from
// when an unlocker saw the lock, which a command that looks once does not know: to it, such a lock is malformed.
func withoutDefaults(f diagnosis.CombinedPolicy) diagnosis.CombinedPolicy {
	f.Policy.DefaultAlertAfter = 0
	f.Policy.DefaultAutoUnlockAfter = 0
	return f
}

// asSeen returns the record as if an observer, whose monotonic clock is 0 now, had seen the proof when it was written.
func asSeen(r *metadata.Record, now time.Time) *metadata.Record {
	if r.Death == nil || r.Death.At.IsZero() {
		return r
	}
	death := *r.Death
	death.Seen = min(0, death.At.Sub(now))
	seen := *r
	seen.Death = &death
	return &seen
}
