package fate

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Pause returns why all unlockers that remove locks hold back now: the rules of the first one, except those in but. It
// returns nil if one of them is free to remove, or none removes locks.
func Pause(running []metadata.Presence, but ...staleness.Rule) (rules []string) {
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

// Reasons says by which rules unlockers hold back, in the middle of a sentence. Rules that are not known here are made
// visible.
func Reasons(rules []string) string {
	var all []string
	for _, rule := range rules {
		words := Words(rule)
		if words == rule {
			words = text.Visible(text.Clip(rule, maxValueShown))
		}
		all = append(all, words)
	}
	return strings.Join(all, "; ")
}

// Words says why an unlocker removes nothing now. A rule that is not known here stands as it is.
func Words(rule string) string {
	switch staleness.Rule(rule) {
	case staleness.Gap:
		return "the unlocker was offline and is giving holders time to extend"
	case staleness.Stale:
		return "the unlocker's view of the locks is out of date"
	case staleness.Etcd:
		return "etcd takes no writes, so holders cannot extend either"
	case staleness.Clock:
		return "the unlocker's clock cannot be trusted"
	case staleness.Revision:
		return "etcd went back to an older revision"
	case staleness.Brake:
		return "too many locks are due at once"
	}
	return rule
}
