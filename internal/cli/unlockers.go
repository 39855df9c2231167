package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// modeAutoUnlock is the mode of an unlocker that removes locks; in other modes it only watches.
const modeAutoUnlock = "auto-unlock"

// named is how many locks check names.
const named = 3

// holdBack says why no unlocker removes what is due; empty when one may.
func holdBack(unlockers []metadata.Presence) string {
	if len(unlockers) == 0 {
		return "no unlocker runs, so nothing removes locks"
	}
	var all []string
	for _, u := range unlockers {
		why := u.HeldBack
		if u.Mode != modeAutoUnlock {
			why = []string{shortText(u.Mode)}
		}
		if len(why) == 0 {
			return ""
		}
		all = append(all, fmt.Sprintf("%s (%s)", shortText(u.ID), term.Clip(text.Visible(strings.Join(why, ", ")),
			term.CellColumns)))
	}
	text := "the unlockers hold back: " + strings.Join(all[:min(named, len(all))], ", ")
	if more := len(all) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// lasting leaves out hold-backs that end by themselves in a moment.
func lasting(all []metadata.Presence) []metadata.Presence {
	all = slices.Clone(all)
	for i := range all {
		all[i].HeldBack = slices.DeleteFunc(slices.Clone(all[i].HeldBack),
			func(rule string) bool { return rule == string(staleness.Gap) })
	}
	return all
}
