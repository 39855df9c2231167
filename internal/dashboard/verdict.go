package dashboard

import (
	"strings"
	"time"
)

// verdict is the answer of the list in one sentence, and how bad it is.
type verdict struct {
	Level string // bad, alerting, warn, calm: a class
	Text  sentence
}

// verdict says what a person must know first. The first sentence that applies wins; that the picture is stale is said by the
// banner of the page, and the sentence here then is about the last known state.
func (d *Dashboard) verdict(s *snapshot, l lens) verdict {
	all := s.all
	switch unlockers, known := d.unlockers(); {
	case known && len(unlockers) == 0 && !l.stale:
		text := say("No unlocker is running: nothing is alerted or removed.")
		return verdict{"bad", text.when(all.Alerting+all.Expired > 0, " "+needy(all))}
	case all.Expired > 0:
		return verdict{"expired", d.expiredSentence(s, l, unlockers)}
	case all.Alerting > 0:
		return verdict{"alerting", d.nextUnlock(say(plural(all.Alerting, "lock", "locks")+" alerting."), all, l)}
	case all.Expiring > 0:
		return verdict{"expiring", d.nextUnlock(say(plural(all.Expiring, "lock", "locks")+" expiring."), all, l)}
	case all.Malformed > 0:
		return verdict{"warn", say(plural(all.Malformed, "malformed lock: it", "malformed locks: they") + " cannot alert or auto-unlock by " +
			itself(all.Malformed) + ".")}
	case all.Total > 0:
		return verdict{"calm", quiet(all, l)}
	}
	return verdict{"calm", say("No locks held.")}
}

func itself(n int) string {
	if n == 1 {
		return "itself"
	}
	return "themselves"
}

// needy counts what would need an unlocker.
func needy(all counts) string {
	var parts []string
	if all.Expired > 0 {
		parts = append(parts, plural(all.Expired, "lock", "locks")+" expired")
	}
	if all.Alerting > 0 {
		parts = append(parts, plural(all.Alerting, "lock", "locks")+" alerting")
	}
	return strings.Join(parts, ", ") + "."
}

func quiet(all counts, l lens) sentence {
	text := say("No locks alerting. " + thousands(all.Total) + " held")
	if oldest := l.lasting(all.Oldest); oldest != nil {
		text = text.say(", oldest ").time(oldest)
	}
	if all.Waiting > 0 {
		text = text.say(", " + thousands(all.Waiting) + " waiting")
		if longest := l.lasting(all.Longest); longest != nil {
			text = text.say(" (longest ").time(longest).say(")")
		}
	}
	return text.say(".")
}

func (d *Dashboard) nextUnlock(text sentence, all counts, l lens) sentence {
	next := all.NextUnlock
	if next == nil {
		return text.say(" None of them auto-unlocks.")
	}
	name, url, left := clip(next.Name, maxNameShown), d.urls.Lock(next.Name, next.UUID), l.next(next.verdict.AutoUnlockAt)
	switch left.Kind {
	case "over": // the picture is a moment old
		left = &moment{At: left.At, Text: "due"}
	case "":
		return text.say(" The auto-unlock of ").link(name, url).say(" was due, outcome unknown.")
	}
	return text.say(" Next auto-unlock ").time(left).say(": ").link(name, url)
}

// expiredSentence says that locks should be gone by now, and why they are not where an unlocker tells.
func (d *Dashboard) expiredSentence(s *snapshot, l lens, unlockers []Unlocker) sentence {
	var oldest *row
	for _, r := range s.rows {
		if r.look == expired && (oldest == nil || r.verdict.AutoUnlockAt.Before(oldest.verdict.AutoUnlockAt)) {
			oldest = r
		}
	}
	text := say(plural(s.all.Expired, "lock", "locks") + " expired")
	if !l.stale {
		text = text.say(" by ").time(l.age(oldest.verdict.AutoUnlockAt))
	}
	text = text.say(": ").link(clip(oldest.Name, maxNameShown), d.urls.Lock(oldest.Name, oldest.UUID)).say(". ")
	for _, u := range unlockers {
		if len(u.HeldBack) > 0 {
			return text.say("Unlocker ").value(u.ID).say(" holds back: ").value(strings.Join(u.HeldBack, ", ")).say(".")
		}
	}
	if mode, all := commonMode(unlockers); all && mode != "auto-unlock" {
		return text.say("The unlocker only watches (").value(mode).say("): nothing is removed.")
	}
	grace := d.config.Policy.ClockSkew + d.config.Policy.MinWarning + 5*time.Second
	if l.now.Sub(oldest.verdict.AutoUnlockAt) > grace {
		return text.say("It should have been removed.")
	}
	return text.say("It is about to be removed.")
}

// commonMode is the mode of the unlockers when all agree.
func commonMode(unlockers []Unlocker) (mode string, all bool) {
	for i, u := range unlockers {
		if i > 0 && u.Mode != mode {
			return "", false
		}
		mode = u.Mode
	}
	return mode, mode != ""
}

// unlockers returns the unlockers that are alive, and whether that is known.
func (d *Dashboard) unlockers() (alive []Unlocker, known bool) {
	if d.config.Unlockers == nil {
		return nil, false
	}
	return d.config.Unlockers(), true
}
