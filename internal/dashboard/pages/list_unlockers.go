package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Spared says why no unlocker removes the lock, whenever it is due; nil where one may, or none runs.
func Spared(lock string, unlockers []protocol.Unlocker) phrase.Sentence {
	f := setup.FateBy(unlockers)
	switch {
	case len(unlockers) > 0 && !f.Removes:
		return phrase.Say("The unlocker only watches (").Value(f.Watching).Say("): nothing is removed.")
	case f.Excludes(lock):
		return phrase.Say("Unlockers never remove it, by its name.")
	}
	return nil
}

// notKnown says why it is not known what unlockers decide.
func notKnown(what string, f *fate.Fate) phrase.Sentence {
	said := phrase.Say(what + " is not known")
	switch n := len(f.Silent); n {
	case 0:
		return said.Say(".")
	case 1:
		return said.Say(": ").Value(f.Silent[0]).Say(" does not publish its policy.")
	default:
		return said.Say(": ").Value(f.Silent[0]).Say(" and " + phrase.Plural(n-1, "other", "others") +
			" do not publish their policy.")
	}
}

// pause says why none of the unlockers that may remove locks does; nil where one is free to.
func pause(unlockers []protocol.Unlocker) phrase.Sentence {
	var why []string
	for _, u := range unlockers {
		if u.Mode != fate.AutoUnlock {
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
