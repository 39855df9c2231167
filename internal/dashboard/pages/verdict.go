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

// Verdict says what a person must know first. The first sentence that applies wins; that the picture is stale is said
// by the banner of the page, and the sentence here then is about the last known state.
func (d *Pages) Verdict(s *locks.Snapshot, l phrase.Viewpoint) verdict {
	all := s.All
	switch unlockers, known := d.Unlockers(); {
	case known && len(unlockers) == 0 && !l.Stale:
		text := phrase.Say("No unlocker is running: nothing is alerted or removed.")
		return verdict{"bad", text.When(all.Alerting+all.Abandoned+all.Expired > 0, " "+needy(all))}
	case all.Expired > 0:
		return verdict{"expired", d.expiredSentence(s, l, unlockers)}
	case all.Abandoned > 0:
		return verdict{"abandoned", d.abandonedSentence(s, l, unlockers)}
	case all.Alerting > 0:
		return verdict{"alerting", d.nextUnlock(phrase.Say(phrase.Plural(all.Alerting, "lock", "locks")+" alerting."),
			all, l)}
	case all.Expiring > 0:
		return verdict{"expiring", d.nextUnlock(phrase.Say(phrase.Plural(all.Expiring, "lock", "locks")+" expiring."),
			all, l)}
	case all.Malformed > 0:
		return verdict{"warn", phrase.Say(phrase.Plural(all.Malformed, "malformed lock", "malformed locks") +
			": a field that the protocol acts on is missing or cannot be read.")}
	case all.Total > 0:
		return verdict{"calm", quiet(all, l)}
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

func quiet(all locks.Counts, l phrase.Viewpoint) phrase.Sentence {
	text := phrase.Say("No locks alerting. " + phrase.Thousands(all.Total) + " held")
	if oldest := l.Lasting(all.Oldest); oldest != nil {
		text = text.Say(", oldest ").Time(oldest)
	}
	if all.Waiting > 0 {
		text = text.Say(", " + phrase.Thousands(all.Waiting) + " waiting")
		if longest := l.Lasting(all.Longest); longest != nil {
			text = text.Say(" (longest ").Time(longest).Say(")")
		}
	}
	return text.Say(".")
}

func (d *Pages) nextUnlock(said phrase.Sentence, all locks.Counts, l phrase.Viewpoint) phrase.Sentence {
	next := all.NextUnlock
	if next == nil {
		return said.Say(" None of them auto-unlocks.")
	}
	name := text.Clip(next.Name, site.MaxNameShown)
	url := d.Urls.Lock(next.Name, next.UUID)
	left := l.Next(next.UnlockAt())
	switch left.Kind {
	case "over": // the picture is a moment old
		left = &phrase.Moment{At: left.At, Text: "due"}
	case "":
		return said.Say(" The auto-unlock of ").Link(name, url).Say(" was due, outcome unknown.")
	}
	return said.Say(" Next auto-unlock ").Time(left).Say(": ").Link(name, url)
}

// expiredSentence says that locks should be gone by now, and why they are not where an unlocker tells.
func (d *Pages) expiredSentence(s *locks.Snapshot, l phrase.Viewpoint, unlockers []setup.Unlocker) phrase.Sentence {
	var oldest *locks.Row
	for _, r := range s.Rows {
		if r.Display == locks.Expired && (oldest == nil || r.Verdict.AutoUnlockAt.Before(oldest.Verdict.AutoUnlockAt)) {
			oldest = r
		}
	}
	said := phrase.Say(phrase.Plural(s.All.Expired, "lock", "locks") + " expired")
	if !l.Stale {
		said = said.Say(" by ").Time(l.Age(oldest.Verdict.AutoUnlockAt))
	}
	said = said.Say(": ").Link(text.Clip(oldest.Name, site.MaxNameShown),
		d.Urls.Lock(oldest.Name, oldest.UUID)).Say(". ")
	if why := pause(unlockers); why != nil {
		return append(said, why...)
	}
	if mode, all := commonMode(unlockers); all && mode != "auto-unlock" {
		return said.Say("The unlocker only watches (").Value(mode).Say("): nothing is removed.")
	}
	grace := d.Config.Policy.ClockSkew + d.Config.Policy.MinWarning + 5*time.Second
	if l.Now.Sub(oldest.Verdict.AutoUnlockAt) > grace {
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
		return phrase.Say("Auto-unlock is slowed down: ").Value(site.HeldBack(why[0])).Say(".")
	}
	s := phrase.Say("Auto-unlock is paused: ")
	for i, rule := range why {
		s = s.When(i > 0, "; ").Value(site.HeldBack(rule))
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
