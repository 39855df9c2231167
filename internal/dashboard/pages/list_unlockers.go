package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func onlyWatches(mode string) phrase.Sentence {
	return phrase.Say("The unlocker only watches (").Value(mode).Say("): nothing is removed.")
}

// pause says why none of the unlockers that may remove locks does; nil where one is free to.
func pause(unlockers []setup.Unlocker) phrase.Sentence {
	var why []string
	for _, u := range unlockers {
		if u.Mode != "auto-unlock" {
			continue
		}
		if len(u.HeldBack) == 0 {
			return nil
		}
		if why == nil {
			why = u.HeldBack
		}
	}
	switch {
	case why == nil:
		return nil
	case len(why) == 1 && why[0] == string(staleness.Brake):
		return phrase.Say("Auto-unlock is slowed down: ").Value(phrase.HeldBack(why[0])).Say(".")
	}
	s := phrase.Say("Auto-unlock is paused: ")
	for i, rule := range why {
		s = s.When(i > 0, "; ").Value(phrase.HeldBack(rule))
	}
	return s.Say(".")
}

// commonMode is the mode of the unlockers when all agree.
func commonMode(unlockers []setup.Unlocker) (mode string, all bool) {
	for i, u := range unlockers {
		if i > 0 && u.Mode != mode {
			return "", false
		}
		mode = u.Mode
	}
	return mode, mode != ""
}
