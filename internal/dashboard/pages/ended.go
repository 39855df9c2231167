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
	Word  string // released, auto_unlocked, forced, for people
	When  *phrase.Moment
	By    string
	Why   string
	Owner string
	Host  string
	Held  string
	UUID  string
}

func (d *Pages) endedPage(r *site.Request, v *site.Lock) lockPage {
	e := v.Ending
	p := lockPage{Page: d.Page(r, e.Lock), Name: e.Lock, Look: "released", Purpose: e.Purpose, Free: v.Row == nil}
	p.Here = "list"
	p.JSON = d.Urls.LockAPI(e.Lock)
	p.Back = d.Urls.Back(FromView(d.Urls, r))
	p.Ended = &endedView{Word: locks.EndedWord(e.Ended), When: p.Age(e.EndedAt.Time), By: e.By, Why: e.Why,
		Owner: e.Owner,
		Host:  locks.HostPID(e.Hostname, e.PID), UUID: e.UUID}
	if !e.LockedAt.IsZero() && !e.EndedAt.IsZero() {
		p.Ended.Held = text.Duration(e.EndedAt.Sub(e.LockedAt.Time))
	}
	if v.Row != nil {
		p.Current = d.Urls.Lock(v.Name, v.UUID)
		p.Sentence = HolderSentence(v.Row, v.Viewpoint(p.Viewpoint), v.Document.Fields)
	}
	for _, f := range []fact{{"hold", e.UUID}, {"fencing token", phrase.Known(e.Token)}, {"owner", e.Owner},
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
