package pages

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// life is what is known of a lock's past and present, newest first: holds, waits, what operators did, endings, and the
// times about which nothing is known.
type life struct {
	Events []event
	More   bool   // there are more in the history
	Unread string // why etcd could not be read
	URL    string // the history of the lock
	Since  *app.Moment
	past   []metadata.Ending // the holds that are over, newest first
}

type event struct {
	Class string // held, ended, waits, done, alert or gap
	When  *app.Moment
	Badge string // how a hold ended
	Said  app.Sentence
	URL   string   // the page of the hold
	Notes []string // more about it, visible text
	at    time.Time
}

const (
	maxLifeHolds   = 50
	maxLifeWaiters = 5
	maxLifeHolders = 10
)

// lifeOf is the life of the lock that was found.
func (p *Pages) lifeOf(r *app.Request, lock *app.Lock) life {
	at := lock.Viewpoint(r.Viewpoint())
	l := life{URL: p.app.URLs.To("history", "q", locks.Exactly("name", lock.Name))}
	l.addPast(p, r, lock.Name, at)
	holders := lock.Shares
	if lock.Row != nil {
		holders = []*locks.Row{lock.Row}
	}
	for _, row := range holders[:min(len(holders), maxLifeHolders)] {
		l.addHold(p, row, row.Name != lock.Name, at)
	}
	l.addWaiters(lock.InLine, at)
	gaps, _ := p.app.History.Watched(r.Now, r.Fresh)
	l.addGaps(gaps)
	reach := p.app.History.Reach(r.Now)
	l.Since = at.Since(reach)
	l.add(at, "gap", reach, app.Say("This dashboard started watching; earlier releases are not known"))
	slices.SortStableFunc(l.Events, func(a, b event) int { return b.at.Compare(a.at) })
	return l
}

// last is the hold that ended last, or nil.
func (l *life) last() *metadata.Ending {
	if len(l.past) == 0 {
		return nil
	}
	return &l.past[0]
}

func (l *life) add(at app.Viewpoint, class string, when time.Time, what app.Sentence, notes ...string) *event {
	if when.IsZero() {
		return &event{}
	}
	l.Events = append(l.Events, event{Class: class, When: at.Since(when), Said: what, at: when,
		Notes: said(notes...)})
	return &l.Events[len(l.Events)-1]
}

// process names who did something: "billing on billing-7f9c:17".
func process(owner, host string, pid int64) app.Sentence {
	s := app.Sentence{}
	if owner != "" || host == "" {
		s = s.Value(cmp.Or(text.Clip(owner, app.MaxWordShown), "somebody"))
	}
	if host = app.HostPID(host, pid); host != "" {
		if len(s) > 0 {
			s = s.Say(" on ")
		}
		s = s.Value(host)
	}
	return s
}

// addHold adds what is known of a hold that lasts.
func (l *life) addHold(p *Pages, r *locks.Row, named bool, at app.Viewpoint) {
	if r.Token == 0 {
		return
	}
	took := process(r.Owner, r.Hostname, r.PID).Say(" took it")
	if named {
		took = took.Say(" as ").Value(text.Clip(r.Name, app.MaxNameShown))
	}
	l.add(at, "held", r.LockedAt, took, text.Visible(text.Clip(r.Purpose, app.MaxLineShown))).URL =
		p.app.URLs.Lock(r.Name, r.UUID)
	if r.Alive != nil {
		progress := ""
		if r.Alive.Progress != "" {
			progress = "progress: " + text.Visible(text.Clip(r.Alive.Progress, app.MaxLineShown))
		}
		l.add(at, "held", r.Alive.At, app.Say("The holder called alive"), progress)
	}
	if alert := r.Verdict().AlertAt; !alert.After(at.AsOf) {
		l.add(at, "alert", alert, app.Say("Alert: its holder expected to be done by then"))
	}
	if r.FinishRequest != nil {
		l.add(at, "done", r.FinishRequest.At.Time, app.Say("The holder was asked to finish"),
			protocol.DescribeFinishRequest(r.Record, at.Now))
	}
	if r.MoreTime != nil {
		l.add(at, "done", r.MoreTime.At.Time, app.Say("The holder was given more time"),
			protocol.DescribeMoreTime(r.Record.MoreTime, at.Now))
	}
	if a := r.ValidAcknowledgement(at.Now); a != nil {
		l.add(at, "done", a.At.Time, app.Say("An operator acknowledged it"),
			protocol.DescribeAcknowledgement(r.Record, at.Now))
	}
	if r.ProvenDead() {
		what, how := protocol.WhatEnded(r.Death)
		l.add(at, "alert", protocol.EndedAt(r.Death), app.Say("The holder ended: "+what+" "+how))
	}
}

// addWaiters adds the waits that last, the first in line first.
func (l *life) addWaiters(queue []metadata.Waiter, at app.Viewpoint) {
	for i, w := range queue {
		if i == maxLifeWaiters {
			return
		}
		said := process(w.Owner, w.Hostname, w.PID).Say(" started waiting, and is still waiting")
		if more := len(queue) - maxLifeWaiters; i == maxLifeWaiters-1 && more > 0 {
			said = said.Say(", as do " + text.Thousands(more) + " more")
		}
		l.add(at, "waits", w.Since.Time, said)
	}
}

// addPast adds the holds that are over.
func (l *life) addPast(p *Pages, r *app.Request, name string, at app.Viewpoint) {
	all, err := p.app.History.Endings(r.Context(), r.Now, name)
	l.Unread = p.app.Unread(err)
	l.past = all
	for i := range all {
		e := &all[i]
		if l.More = i >= maxLifeHolds; !l.More {
			l.addEnding(p, e, e.Name != name, at)
		}
	}
}

func (l *life) addEnding(p *Pages, e *metadata.Ending, named bool, at app.Viewpoint) {
	v := p.pastView(e, at)
	said := process(e.Owner, e.Hostname, e.PID)
	if named {
		said = said.Say(" with ").Value(v.Name)
	}
	if v.Held != "" {
		said = said.Say(" held it for " + v.Held)
		if v.Alerted {
			said = said.Say(", longer than expected")
		}
	} else {
		said = said.Say(" held it")
	}
	why := text.Visible(v.Why)
	if v.By != "" {
		why = "by " + text.Visible(v.By)
		if v.Why != "" {
			why += ": " + text.Visible(v.Why)
		}
	}
	ended := l.add(at, "ended", e.EndedAt.Time, said, append([]string{text.Visible(v.Purpose), why}, v.Done...)...)
	ended.Badge = v.Word
	ended.URL = v.URL
}

// addGaps adds the times in which nothing was seen.
func (l *life) addGaps(gaps []etcdread.Gap) {
	for _, g := range gaps {
		said := "Not watching from " + app.UTC(g.From) + " to " + app.TimeOfDay(g.To) +
			": a hold that began and ended in this time is missing"
		l.Events = append(l.Events, event{Class: "gap", at: g.From, Said: app.Say(said)})
	}
}
