package fate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Disagreement is a setting that decides the fate of locks and differs between unlockers.
type Disagreement struct {
	Setting string // mode, or the unlocker's flag, such as sweep.abandoned
	Camps   []Camp // at least two, by value
}

// Camp is the unlockers with one value of a setting.
type Camp struct {
	Value string
	IDs   []string // in order
}

// Disagreements returns the settings that differ between running unlockers. One that does not publish its policy
// agrees with all.
func Disagreements(running []metadata.Presence) (all []Disagreement) {
	for _, s := range settings() {
		camps := map[string][]string{}
		for i := range running {
			if value, ok := s.value(&running[i]); ok {
				camps[value] = append(camps[value], running[i].ID)
			}
		}
		if len(camps) < 2 {
			continue
		}
		d := Disagreement{Setting: s.name}
		for value, ids := range camps {
			slices.Sort(ids)
			d.Camps = append(d.Camps, Camp{value, ids})
		}
		slices.SortFunc(d.Camps, func(a, b Camp) int { return strings.Compare(a.Value, b.Value) })
		all = append(all, d)
	}
	return all
}

type setting struct {
	name  string
	value func(*metadata.Presence) (value string, known bool)
}

// settings are those that decide the fate of locks.
func settings() []setting {
	published := func(name string, value func(staleness.Policy) string) setting {
		return setting{name, func(p *metadata.Presence) (string, bool) {
			policy, ok := staleness.Published(p.Sweep)
			return value(policy), ok
		}}
	}
	lasting := func(name string, value func(staleness.Policy) time.Duration) setting {
		return published(name, func(p staleness.Policy) string { return value(p).String() })
	}
	return []setting{
		{"mode", func(p *metadata.Presence) (string, bool) { return p.Mode, p.Mode != "" }},
		published("sweep.abandoned", func(p staleness.Policy) string { return p.Publish(nil).Abandoned }),
		lasting("sweep.abandoned-grace", func(p staleness.Policy) time.Duration { return p.AbandonedGrace }),
		lasting("sweep.clock-skew", func(p staleness.Policy) time.Duration { return p.ClockSkew }),
		lasting("sweep.min-warning", func(p staleness.Policy) time.Duration { return p.MinWarning }),
		lasting("sweep.default-alert-after", func(p staleness.Policy) time.Duration { return p.DefaultAlertAfter }),
		lasting("sweep.default-auto-unlock-after", func(p staleness.Policy) time.Duration {
			return p.DefaultAutoUnlockAfter
		}),
		lasting("sweep.lock-delay", func(p staleness.Policy) time.Duration { return p.LockDelay }),
		{"sweep.exclude", exclusions},
	}
}

func exclusions(p *metadata.Presence) (globs string, known bool) {
	if p.Sweep == nil {
		return "", false
	}
	return strings.Join(slices.Sorted(slices.Values(p.Sweep.Exclude)), " "), true
}

// How much of a disagreement is named.
const (
	maxNamed      = 3
	maxValueShown = 60
)

// String says who has which value, with the text from outside made visible:
// `sweep.abandoned is report for eu-1, unlock for eu-2 and eu-3`.
func (d Disagreement) String() string {
	var parts []string
	for _, c := range d.Camps[:min(len(d.Camps), maxNamed)] {
		value := text.Visible(text.Clip(c.Value, maxValueShown))
		if c.Value == "" {
			value = "empty"
		}
		parts = append(parts, value+" for "+Names(c.IDs))
	}
	if more := len(d.Camps) - maxNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more values", more))
	}
	return d.Setting + " is " + strings.Join(parts, ", ")
}

// Names lists unlockers by their ids.
func Names(ids []string) string {
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
