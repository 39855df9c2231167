package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// maxNamed is how many locks or unlockers a sentence names.
const maxNamed = 3

// holdBack explains why no unlocker removes what is due; empty if one may.
func holdBack(unlockers []metadata.Presence) string {
	if len(unlockers) == 0 {
		return "no unlocker has announced itself, so nothing removes locks"
	}
	var all []string
	for _, u := range unlockers {
		why := u.HeldBack
		if u.Mode != fate.AutoUnlock {
			why = []string{shortText(u.Mode)}
		}
		if len(why) == 0 {
			return ""
		}
		all = append(all, fmt.Sprintf("%s (%s)", shortText(u.ID), term.Clip(text.Visible(strings.Join(why, ", ")),
			term.CellColumns)))
	}
	text := "the unlockers hold back: " + strings.Join(all[:min(maxNamed, len(all))], ", ")
	if more := len(all) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// withoutGaps leaves out the gap rule, which holds back for a moment only.
func withoutGaps(all []metadata.Presence) []metadata.Presence {
	all = slices.Clone(all)
	for i := range all {
		all[i].HeldBack = slices.DeleteFunc(slices.Clone(all[i].HeldBack),
			func(rule string) bool { return rule == string(staleness.Gap) })
	}
	return all
}
