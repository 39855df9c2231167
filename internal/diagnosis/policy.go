package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// ModeAutoUnlock is the mode of unlockers that remove locks; others only watch.
const ModeAutoUnlock = "auto-unlock"

// CombinedPolicy is how the running unlockers treat stale locks. All unlockers are active, so of several that decide
// differently the first to act counts: together they are as quick as the quickest, and a lock is safe from them only if
// it is safe from each.
type CombinedPolicy struct {
	Unlockers int
	Removes   bool // at least one of them removes locks
	// Watching are their modes if none removes locks, such as "alert-only, dry-run".
	Watching string
	// Policy is what is known of how they decide; zero where nothing is.
	Policy staleness.Policy
	// PolicyUnknown are the ids of those whose policy is not known although it matters, in order.
	PolicyUnknown []string

	exclusions []text.Globs // of names, of each that removes locks, without repetitions
}

// Equal reports whether two policies decide alike about every lock.
func (f *CombinedPolicy) Equal(g *CombinedPolicy) bool {
	return reflect.DeepEqual(f, g)
}

// CombinePolicies returns what these unlockers do. If some of them remove locks, what the others would do does not
// matter.
func CombinePolicies(running []metadata.Presence) CombinedPolicy {
	f := CombinedPolicy{Unlockers: len(running), Removes: slices.ContainsFunc(running, removes)}
	known := false
	for i := range running {
		p := &running[i]
		if f.Removes && !removes(*p) {
			continue
		}
		policy, ok := staleness.FromPresence(p.RemovalPolicy)
		if !ok {
			f.PolicyUnknown = append(f.PolicyUnknown, p.ID)
			continue
		}
		if known {
			policy = quicker(f.Policy, policy)
		}
		f.Policy, known = policy, true
		f.exclude(p.RemovalPolicy.Exclude)
	}
	slices.Sort(f.PolicyUnknown)
	if f.Removes {
		return f
	}
	modes := map[string]bool{}
	for i := range running {
		modes[running[i].Mode] = true
	}
	f.Watching = text.Clip(strings.Join(slices.Sorted(maps.Keys(modes)), ", "), maxValueShown)
	return f
}

func removes(p metadata.Presence) bool { return p.Mode == ModeAutoUnlock }

// IsKnown reports whether there are unlockers and all say how they decide.
func (f *CombinedPolicy) IsKnown() bool { return f.Unlockers > 0 && len(f.PolicyUnknown) == 0 }

// WhyUnknown names the unlockers that do not publish their policy, for the middle of a sentence.
func (f *CombinedPolicy) WhyUnknown() string {
	names := unlockerNames(f.PolicyUnknown)
	if len(f.PolicyUnknown) == 1 {
		return names + " does not publish its policy"
	}
	return names + " do not publish their policy"
}

// quicker returns the combined policy of two unlockers: whichever acts first counts.
func quicker(a, b staleness.Policy) staleness.Policy {
	p := staleness.Policy{
		ClockSkew: min(a.ClockSkew, b.ClockSkew), MinWarning: min(a.MinWarning, b.MinWarning),
		DefaultAlertAfter:      shorter(a.DefaultAlertAfter, b.DefaultAlertAfter),
		DefaultAutoUnlockAfter: shorter(a.DefaultAutoUnlockAfter, b.DefaultAutoUnlockAfter),
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

// shorter returns the shorter of two durations, where 0 means never.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// maxExclusions is how many different lists of exclusions are considered: unlockers should share one. Beyond that, no
// lock counts as excluded.
const maxExclusions = 8

func (f *CombinedPolicy) exclude(globs []string) {
	isSame := func(known text.Globs) bool { return slices.Equal(known, globs) }
	if len(f.exclusions) <= maxExclusions && !slices.ContainsFunc(f.exclusions, isSame) {
		f.exclusions = append(f.exclusions, globs)
	}
}

// Exclusions returns the globs of names that all the unlockers exclude alike; none where they disagree.
func (f *CombinedPolicy) Exclusions() []string {
	if len(f.exclusions) != 1 {
		return nil
	}
	return f.exclusions[0]
}

// Excludes reports whether none of the unlockers ever removes the lock, because of its name.
func (f *CombinedPolicy) Excludes(lock string) bool {
	if !f.IsKnown() || len(f.exclusions) > maxExclusions {
		return false
	}
	return len(f.exclusions) > 0 &&
		!slices.ContainsFunc(f.exclusions, func(excluded text.Globs) bool { return !excluded.Match(lock) })
}

// MayRemove reports whether an unlocker may remove the lock once it is due.
func (f *CombinedPolicy) MayRemove(lock string) bool { return f.Removes && !f.Excludes(lock) }

// setting is one that decides how stale locks are treated: mode, or the unlocker's flag, such as sweep.abandoned.
type setting struct{ name, value string }

func settings(p *metadata.Presence) (all []setting) {
	if p.Mode != "" {
		all = append(all, setting{"mode", p.Mode})
	}
	policy, ok := staleness.FromPresence(p.RemovalPolicy)
	if !ok {
		return all
	}
	return append(all,
		setting{"sweep.abandoned", policy.ToPresence(nil).Abandoned},
		setting{"sweep.abandoned-grace", policy.AbandonedGrace.String()},
		setting{"sweep.clock-skew", policy.ClockSkew.String()},
		setting{"sweep.min-warning", policy.MinWarning.String()},
		setting{"sweep.default-alert-after", policy.DefaultAlertAfter.String()},
		setting{"sweep.default-auto-unlock-after", policy.DefaultAutoUnlockAfter.String()},
		setting{"sweep.lock-delay", policy.LockDelay.String()},
		setting{"sweep.exclude", strings.Join(slices.Sorted(slices.Values(p.RemovalPolicy.Exclude)), " ")})
}

// Disagreements returns the settings that differ between running unlockers, and who has which value, with the text from
// outside made visible: `sweep.abandoned is report for eu-1, unlock for eu-2 and eu-3`. An unlocker that does not
// publish its policy agrees with all.
func Disagreements(running []metadata.Presence) (all []string) {
	var names []string
	byName := map[string]map[string][]string{} // ids of unlockers, by name and value
	for i := range running {
		for _, s := range settings(&running[i]) {
			if byName[s.name] == nil {
				names = append(names, s.name)
				byName[s.name] = map[string][]string{}
			}
			byName[s.name][s.value] = append(byName[s.name][s.value], running[i].ID)
		}
	}
	for _, name := range names {
		if len(byName[name]) > 1 {
			all = append(all, name+" is "+valuesText(byName[name]))
		}
	}
	return all
}

// How much of a disagreement is named.
const (
	maxNamed      = 3
	maxValueShown = 60
)

func valuesText(ids map[string][]string) string {
	var parts []string
	values := slices.Sorted(maps.Keys(ids))
	for _, value := range values[:min(len(values), maxNamed)] {
		shown := cmp.Or(text.Visible(text.Clip(value, maxValueShown)), "empty")
		parts = append(parts, shown+" for "+unlockerNames(slices.Sorted(slices.Values(ids[value]))))
	}
	if more := len(values) - maxNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more values", more))
	}
	return strings.Join(parts, ", ")
}

func unlockerNames(ids []string) string {
	var shown []string
	for _, id := range ids[:min(len(ids), maxNamed)] {
		shown = append(shown, text.Visible(text.Clip(id, maxValueShown)))
	}
	if more := len(ids) - maxNamed; more > 0 {
		return strings.Join(shown, ", ") + fmt.Sprintf(" and %d more", more)
	}
	if n := len(shown); n > 1 {
		return strings.Join(shown[:n-1], ", ") + " and " + shown[n-1]
	}
	return strings.Join(shown, "")
}

// HeldBackBy returns why all unlockers that remove locks hold back now: the rules of the first one, except those in
// but. It returns nil if one of them is free to remove, or none removes locks.
func HeldBackBy(running []metadata.Presence, but ...staleness.Rule) (rules []string) {
	for _, u := range running {
		if !removes(u) {
			continue
		}
		counts := slices.DeleteFunc(slices.Clone(u.HeldBack), func(rule string) bool {
			return slices.Contains(but, staleness.Rule(rule))
		})
		if len(counts) == 0 {
			return nil
		}
		if rules == nil {
			rules = counts
		}
	}
	return rules
}

// RuleTexts says by which rules unlockers hold back, in the middle of a sentence.
func RuleTexts(rules []string) string {
	all := make([]string, len(rules))
	for i, rule := range rules {
		all[i] = RuleText(rule)
	}
	return strings.Join(all, "; ")
}

// RuleText returns why an unlocker removes nothing now. A rule that is not known here is only made visible.
func RuleText(rule string) string {
	switch staleness.Rule(rule) {
	case staleness.RuleGap:
		return "the unlocker was offline and is giving holders time to extend"
	case staleness.RuleStale:
		return "the unlocker's view of the locks is out of date"
	case staleness.RuleEtcd:
		return "etcd takes no writes, so holders cannot extend either"
	case staleness.RuleClock:
		return "the unlocker's clock cannot be trusted"
	case staleness.RuleUnverified:
		return "the unlocker has no other clock to check its own against, so it must watch a lock for longer"
	case staleness.RuleRevision:
		return "etcd went back to an older revision"
	case staleness.RuleBrake:
		return "too many locks are due at once"
	}
	return text.Visible(text.Clip(rule, maxValueShown))
}
