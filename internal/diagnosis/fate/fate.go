// Package fate knows what becomes of stale locks, from what the running unlockers publish, and where these disagree.
//
// All unlockers are active, so of several that decide differently the first to act counts: together they are as quick
// as the quickest, and a lock is safe from them only if it is safe from each.
package fate

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// AutoUnlock is the mode of unlockers that remove locks; others only watch.
const AutoUnlock = "auto-unlock"

// Fate is what the running unlockers do together.
type Fate struct {
	Unlockers int
	Removes   bool // at least one of them removes locks
	// Watching are their modes if none removes locks, such as "alert-only, dry-run".
	Watching string
	// Policy is what is known of how they decide; zero where nothing is.
	Policy staleness.Policy
	// Silent are the ids of those whose policy is not known although it matters, in order.
	Silent []string

	exclusions [][]string // of each that removes locks, without repetitions
}

// Of returns what these unlockers do. If some of them remove locks, what the others would do does not matter.
func Of(running []metadata.Presence) Fate {
	f := Fate{Unlockers: len(running), Removes: slices.ContainsFunc(running, removes)}
	known := false
	for i := range running {
		p := &running[i]
		if f.Removes && !removes(*p) {
			continue
		}
		policy, ok := staleness.Published(p.Sweep)
		if !ok {
			f.Silent = append(f.Silent, p.ID)
			continue
		}
		if known {
			policy = quicker(f.Policy, policy)
		}
		f.Policy, known = policy, true
		f.exclude(p.Sweep.Exclude)
	}
	slices.Sort(f.Silent)
	if !f.Removes {
		f.Watching = modes(running)
	}
	return f
}

func removes(p metadata.Presence) bool { return p.Mode == AutoUnlock }

// modes are the different modes of the unlockers.
func modes(running []metadata.Presence) string {
	var all []string
	for i := range running {
		all = append(all, running[i].Mode)
	}
	slices.Sort(all)
	return text.Clip(strings.Join(slices.Compact(all), ", "), maxValueShown)
}

// Known reports whether there are unlockers and all say how they decide.
func (f *Fate) Known() bool { return f.Unlockers > 0 && len(f.Silent) == 0 }

// quicker is the policy of two unlockers together.
func quicker(a, b staleness.Policy) staleness.Policy {
	p := staleness.Policy{
		ClockSkew: min(a.ClockSkew, b.ClockSkew), MinWarning: min(a.MinWarning, b.MinWarning),
		DefaultAlertAfter:      earlier(a.DefaultAlertAfter, b.DefaultAlertAfter),
		DefaultAutoUnlockAfter: earlier(a.DefaultAutoUnlockAfter, b.DefaultAutoUnlockAfter),
		UnlockAbandoned:        a.UnlockAbandoned || b.UnlockAbandoned,
		AbandonedGrace:         min(a.AbandonedGrace, b.AbandonedGrace),
		// whoever removes the lock, others may have to wait this long
		LockDelay: max(a.LockDelay, b.LockDelay),
	}
	switch {
	case !b.UnlockAbandoned && a.UnlockAbandoned:
		p.AbandonedGrace = a.AbandonedGrace
	case !a.UnlockAbandoned && b.UnlockAbandoned:
		p.AbandonedGrace = b.AbandonedGrace
	}
	return p
}

// earlier is the shorter of two times, where 0 means never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// maxExclusions is how many different lists of exclusions are considered: unlockers should have one. Where there are
// more, no lock counts as excluded.
const maxExclusions = 8

func (f *Fate) exclude(globs []string) {
	for _, known := range f.exclusions {
		if slices.Equal(known, globs) {
			return
		}
	}
	if len(f.exclusions) <= maxExclusions {
		f.exclusions = append(f.exclusions, globs)
	}
}

// Exclusions are the globs of names that all the unlockers exclude alike; none where they disagree.
func (f *Fate) Exclusions() []string {
	if len(f.exclusions) != 1 {
		return nil
	}
	return f.exclusions[0]
}

// Excludes reports whether none of the unlockers ever removes the lock, because of its name.
func (f *Fate) Excludes(lock string) bool {
	if !f.Known() || len(f.exclusions) > maxExclusions {
		return false
	}
	for _, globs := range f.exclusions {
		if len(globs) == 0 {
			return false
		}
		if expression, err := text.Globs(globs...); err != nil || !expression.MatchString(lock) {
			return false
		}
	}
	return true
}
