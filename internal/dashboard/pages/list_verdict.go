package pages

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// verdict is the answer of the list in one sentence, and how bad it is.
type verdict struct {
	Level string // bad, alerting, warn, calm: a class
	Text  phrase.Sentence
}

// Verdict says what a person must know first. The first sentence that applies wins; that the snapshot is stale is said
// by the banner of the page, and the sentence here then is about the last known state.
func (p *Pages) Verdict(s *locks.Snapshot, at phrase.Viewpoint) verdict {
	all := s.All
	switch unlockers, known := p.site.Unlockers(); {
	case known && len(unlockers) == 0 && !at.Stale:
		text := phrase.Say("No unlocker is running: nothing is alerted or removed.")
		return verdict{"bad", text.When(all.Alerting+all.Abandoned+all.Expired > 0, " "+needy(all))}
	case all.Expired > 0:
		return verdict{"expired", p.expiredSentence(s, at, unlockers)}
	case all.Abandoned > 0:
		return verdict{"abandoned", p.abandonedSentence(s, at, unlockers)}
	case all.Alerting > 0:
		return verdict{"alerting", p.nextUnlock(phrase.Say(phrase.Plural(all.Alerting, "lock", "locks")+" alerting."),
			all, at)}
	case all.Expiring > 0:
		return verdict{"expiring", p.nextUnlock(phrase.Say(phrase.Plural(all.Expiring, "lock", "locks")+" expiring."),
			all, at)}
	case all.Malformed > 0:
		return verdict{"warn", phrase.Say(phrase.Plural(all.Malformed, "malformed lock", "malformed locks") +
			": a field that the protocol acts on is missing or cannot be read.")}
	case all.Total > 0:
		return verdict{"calm", quiet(all, at)}
	}
	return verdict{"calm", phrase.Say("No locks held.")}
}

// needy counts what would need an unlocker.
func needy(all locks.Counts) string {
	var parts []string
	if all.Expired > 0 {
		parts = append(parts, phrase.Plural(all.Expired, "lock", "locks")+" expired")
	}
	if all.Abandoned > 0 {
		parts = append(parts, phrase.Plural(all.Abandoned, "lock", "locks")+" abandoned")
	}
	if all.Alerting > 0 {
		parts = append(parts, phrase.Plural(all.Alerting, "lock", "locks")+" alerting")
	}
	return strings.Join(parts, ", ") + "."
}

func quiet(all locks.Counts, at phrase.Viewpoint) phrase.Sentence {
	text := phrase.Say("No locks alerting. " + phrase.Thousands(all.Total) + " held")
	if oldest := at.Lasting(all.Oldest); oldest != nil {
		text = text.Say(", oldest ").Time(oldest)
	}
	if all.Waiting > 0 {
		text = text.Say(", " + phrase.Thousands(all.Waiting) + " waiting")
		if longest := at.Lasting(all.Longest); longest != nil {
			text = text.Say(" (longest ").Time(longest).Say(")")
		}
	}
	return text.Say(".")
}

func (p *Pages) nextUnlock(said phrase.Sentence, all locks.Counts, at phrase.Viewpoint) phrase.Sentence {
	next := all.NextUnlock
	if next == nil {
		return said.Say(" None of them auto-unlocks.")
	}
	name := text.Clip(next.Name, site.MaxNameShown)
	url := p.site.URLs.Lock(next.Name, next.UUID)
	left := at.Next(next.UnlockAt())
	switch left.Kind {
	case "over": // the snapshot is a moment old
		left = &phrase.Moment{At: left.At, Text: "due"}
	case "":
		return said.Say(" The auto-unlock of ").Link(name, url).Say(" was due, outcome unknown.")
	}
	return said.Say(" Next auto-unlock ").Time(left).Say(": ").Link(name, url)
}

// expiredSentence says that locks should be gone by now, and why they are not where an unlocker tells.
func (p *Pages) expiredSentence(s *locks.Snapshot, at phrase.Viewpoint, unlockers []setup.Unlocker) phrase.Sentence {
	var oldest *locks.Row
	for _, r := range s.Rows {
		if r.Display == locks.Expired && (oldest == nil || r.Verdict.AutoUnlockAt.Before(oldest.Verdict.AutoUnlockAt)) {
			oldest = r
		}
	}
	said := phrase.Say(phrase.Plural(s.All.Expired, "lock", "locks") + " expired")
	if !at.Stale {
		said = said.Say(" by ").Time(at.Age(oldest.Verdict.AutoUnlockAt))
	}
	said = said.Say(": ").Link(text.Clip(oldest.Name, site.MaxNameShown),
		p.site.URLs.Lock(oldest.Name, oldest.UUID)).Say(". ")
	if why := pause(unlockers); why != nil {
		return append(said, why...)
	}
	if mode, all := commonMode(unlockers); all && mode != "auto-unlock" {
		return said.Say("The unlocker only watches (").Value(mode).Say("): nothing is removed.")
	}
	grace := p.site.Config.Policy.ClockSkew + p.site.Config.Policy.MinWarning + 5*time.Second
	if at.Now.Sub(oldest.Verdict.AutoUnlockAt) > grace {
		return said.Say("It should have been removed.")
	}
	return said.Say("It is about to be removed.")
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
