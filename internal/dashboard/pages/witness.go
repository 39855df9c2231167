package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
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
