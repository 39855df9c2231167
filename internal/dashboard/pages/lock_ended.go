package pages

import (
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
)

// endedView is how a hold ended.
type endedView struct {
	Word  string
	When  *phrase.Moment
	By    string
	Why   string
	Owner string
	Host  string
	Held  string
	UUID  string
}

func (p *Pages) endedPage(r *site.Request, lock *site.Lock) lockPage {
	e := lock.Ending
	v := lockPage{lockFrame: p.lockFrame(r, e.Lock), Look: "released", Purpose: e.Purpose, Free: lock.Row == nil}
	v.Ended = &endedView{Word: locks.EndedWord(e.Ended), When: v.Age(e.EndedAt.Time), By: e.By, Why: e.Why,
		Owner: e.Owner, Host: locks.HostPID(e.Hostname, e.PID), UUID: e.UUID}
	if !e.LockedAt.IsZero() && !e.EndedAt.IsZero() {
		v.Ended.Held = text.Duration(e.EndedAt.Sub(e.LockedAt.Time))
	}
	if lock.Row != nil {
		v.Current = p.site.URLs.Lock(lock.Name, lock.Row.UUID)
		unlockers := p.site.Unlockers()
		v.Sentence = HolderSentence(lock.Row, lock.Viewpoint(v.Viewpoint), lock.Document.Fields, unlockers)
	}
	v.Done = doneTo(e, v.Viewpoint.Now)
	v.Facts = append([]fact{{"hold", e.UUID}, {"fencing token", phrase.Known(e.Token)}}, holderFacts(&e.Holder)...)
	v.Facts = known(append(v.Facts, fact{"last progress", e.Progress}))
	for _, t := range []struct {
		label string
		at    time.Time
	}{{"locked", e.LockedAt.Time}, {"alert", e.AlertAt.Time}, {"last alive", e.AliveAt.Time},
		{"auto-unlock", e.AutoUnlockAt.Time}, {"ended", e.EndedAt.Time}} {
		if m := v.Age(t.at); m != nil {
			m.Text, m.Kind = m.Text+" ago", ""
			if t.at.After(e.EndedAt.Time) && !e.EndedAt.IsZero() || t.at.After(v.Viewpoint.Now) {
				m.Text = "not reached"
			}
			v.Times = append(v.Times, timeFact{t.label, m, ""})
		}
	}
	return v
}
