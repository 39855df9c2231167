package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// howItEnded says how the holder ended: "its container ended 40s ago with exit code 137 (OOMKilled)".
func howItEnded(s *metadata.Statement, at phrase.Viewpoint) phrase.Sentence {
	what, how := protocol.WhatEnded(s)
	said := phrase.Say(what)
	if ended := at.Since(protocol.EndedAt(s)); ended != nil {
		said = said.Say(" ").Time(ended)
	}
	return said.When(how != "", " "+how)
}

// suspected is what a row of the list says of a holder that is probably dead.
func suspected(r *metadata.Record, at phrase.Viewpoint) phrase.Sentence {
	if r.Death != nil || !diagnosis.Suspected(r) {
		return nil
	}
	return phrase.Say("probably dead: ").Sentence(howItEnded(r.Suspicion, at))
}

// witnessed is what a row of the list says of a holder that is dead for certain, or disputes it.
func witnessed(r *metadata.Record, at phrase.Viewpoint) phrase.Sentence {
	switch {
	case r.Proven():
		return howItEnded(r.Death, at)
	case r.Disputed():
		return howItEnded(r.Death, at).Say(", which the holder disputes")
	}
	return nil
}

// deathSentence says how the holder ended and what happens next; nil where that is not proven.
func (p *Pages) deathSentence(r *locks.Row, at phrase.Viewpoint) phrase.Sentence {
	if !r.Proven() {
		return nil
	}
	said := howItEnded(r.Death, at)
	said[0].Text = phrase.Capital(said[0].Text)
	return append(said.Say(". "), afterDeath(r, at, p.site.Unlockers(), true)...)
}

// afterDeath says what becomes of a lock whose holder has ended. alone says that nothing else on the page tells that no
// unlocker is running.
func afterDeath(r *locks.Row, at phrase.Viewpoint, unlockers []protocol.Unlocker, alone bool) phrase.Sentence {
	if len(unlockers) == 0 {
		if alone && !at.Stale {
			return phrase.Say("No unlocker is running: unlock it by hand.")
		}
		return phrase.Say("Unlock it by hand.")
	}
	f := setup.FateBy(unlockers)
	switch left := at.Next(r.Verdict().RemoveAt); {
	case f.Excludes(r.Name):
		return phrase.Say("Unlockers never remove it, by its name: unlock it by hand.")
	case left == nil && f.Removes && !f.Known():
		return notKnown("Whether it is unlocked now", &f)
	case left == nil || !f.Removes:
		return phrase.Say("Unlockers only report it: unlock it by hand.")
	case pause(unlockers) != nil && left.Kind != "next":
		return pause(unlockers)
	case left.Kind == "":
		return phrase.Say("It was to be unlocked, outcome unknown.")
	case left.Kind == "over":
		return phrase.Say("It is about to be unlocked.")
	default:
		return phrase.Say("It is unlocked ").Time(left).Say(".")
	}
}

// suspicion says what a witness says that proves nothing, and why; nil where there is nothing.
func suspicion(r *metadata.Record, at phrase.Viewpoint) phrase.Sentence {
	switch {
	case r.Disputed():
		return phrase.Say("The witness ").Value(text.Clip(r.Death.By, site.MaxWordShown)).Say(" says that ").
			Sentence(howItEnded(r.Death, at)).Say(", but the holder called alive since: one of the two is wrong. " +
			"The lock does not count as abandoned.")
	case r.Death != nil && !r.Proven():
		return phrase.Say("A witness says that ").Sentence(howItEnded(r.Death, at)).
			Say(". The work outlives its process, so that proves nothing.")
	case r.Suspicion != nil && r.Suspicion.Cause == metadata.CauseCommandLives:
		return phrase.Say("A witness says that ").Sentence(howItEnded(r.Suspicion, at)).
			Say(", and its command has not: ").Value(text.Clip(r.Suspicion.How, site.MaxLineShown)).
			Say(". The lock stays until that has ended, too.")
	case r.Suspicion != nil:
		said := phrase.Say("Suspected, not proven: ").Sentence(howItEnded(r.Suspicion, at))
		if how := r.Suspicion.How; how != "" {
			said = said.Say(" (").Value(text.Clip(how, site.MaxLineShown)).Say(")")
		}
		return said.Say(". Nothing is unlocked because of that.")
	}
	return nil
}
