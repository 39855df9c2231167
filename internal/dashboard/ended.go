package dashboard

import (
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// endedView is how a hold ended.
type endedView struct {
	Word  string // released, auto_unlocked, forced, for people
	When  *phrase.Moment
	By    string
	Why   string
	Owner string
	Host  string
	Held  string
	UUID  string
}

// endedWord is how a hold ended, for people.
func endedWord(ended string) string {
	switch ended {
	case metadata.EndedAutoUnlocked:
		return "auto-unlocked"
	case metadata.EndedForced:
		return "force-unlocked"
	case metadata.EndedReleased:
		return "released"
	}
	return "ended"
}

// alerted is the word that finds the holds for which people were alerted, however they ended.
const alerted = "alerted"

// endedWords are the words for how a hold can have ended.
func endedWords() []string {
	return []string{endedWord(metadata.EndedReleased), endedWord(metadata.EndedAutoUnlocked),
		endedWord(metadata.EndedForced), alerted}
}

func (d *Dashboard) endedPage(c access.Caller, v *lockView) lockPage {
	e := v.ending
	p := lockPage{page: d.page(c, e.Lock), Name: e.Lock, Look: "released", Purpose: e.Purpose, Free: v.row == nil}
	p.Here, p.JSON, p.Back = "list", d.urls.LockAPI(e.Lock), d.urls.Back(v.view)
	p.Ended = &endedView{Word: endedWord(e.Ended), When: p.Age(e.EndedAt.Time), By: e.By, Why: e.Why, Owner: e.Owner,
		Host: hostPID(e.Hostname, e.PID), UUID: e.UUID}
	if !e.LockedAt.IsZero() && !e.EndedAt.IsZero() {
		p.Ended.Held = phrase.Duration(e.EndedAt.Sub(e.LockedAt.Time))
	}
	if v.row != nil {
		p.Current = d.urls.Lock(v.Name, v.UUID)
		p.Sentence = holderSentence(v.row, v.viewpoint(p.Viewpoint), v.document.Fields)
	}
	for _, f := range []fact{{"hold", e.UUID}, {"fencing token", number64(e.Token)}, {"owner", e.Owner},
		{"host", e.Hostname}, {"last progress", e.Progress}} {
		if f.Value != "" {
			p.Facts = append(p.Facts, f)
		}
	}
	for _, t := range []struct {
		label string
		at    time.Time
	}{{"locked", e.LockedAt.Time}, {"alert", e.AlertAt.Time}, {"last alive", e.AliveAt.Time},
		{"auto-unlock", e.AutoUnlockAt.Time}, {"ended", e.EndedAt.Time}} {
		if m := p.Age(t.at); m != nil {
			m.Text, m.Kind = m.Text+" ago", ""
			if t.at.After(e.EndedAt.Time) && !e.EndedAt.IsZero() || t.at.After(p.Viewpoint.Now) {
				m.Text = "not reached"
			}
			p.Times = append(p.Times, timeFact{t.label, m, ""})
		}
	}
	return p
}
