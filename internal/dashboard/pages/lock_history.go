package pages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// lockHistory is the list of events on a lock's page, newest first: holds, waits, endings, and the gaps in the watch.
type lockHistory struct {
	Events    []event
	More      bool              // there are more in the history
	ReadError string            // why etcd could not be read
	URL       string            // the history of the lock
	past      []metadata.Ending // the holds that are over, newest first
}

type event struct {
	Class string // held, ended, waits, alert or gap
	When  *app.TimeText
	Badge string // how a hold ended
	Said  app.RichText
	URL   string   // the page of the hold
	Notes []string // more about it, visible text
	Equal []event  // earlier endings that are alike
	First *event   // the earliest of them
	at    time.Time
}

const (
	maxHistoryHolds   = 50
	maxHistoryWaiters = 5
	maxHistoryHolders = 10
)

func (p *Pages) lockHistory(r *app.Request, lock *app.Lock) lockHistory {
	at := lock.Viewpoint(r.Viewpoint())
	l := lockHistory{URL: p.app.URLs.To("history", "q", locks.Exactly("name", lock.Name))}
	gaps, _ := p.app.History.WatchGaps(r.Now, r.Fresh)
	l.addPast(p, r, lock.Name, gaps, at)
	holders := lock.Shares
	if lock.Row != nil {
		holders = []*locks.Row{lock.Row}
	}
	for _, row := range holders[:min(len(holders), maxHistoryHolders)] {
		l.addHold(p, row, row.Name != lock.Name, at)
	}
	l.addWaiters(lock.Waiters, at)
	reach := p.app.History.CompleteSince(r.Now)
	l.add(at, "gap", reach, app.Plain("This dashboard started watching; earlier releases are not known"))
	slices.SortStableFunc(l.Events, func(a, b event) int { return b.at.Compare(a.at) })
	return l
}

func (l *lockHistory) last() *metadata.Ending {
	if len(l.past) == 0 {
		return nil
	}
	return &l.past[0]
}

func (l *lockHistory) add(at app.Viewpoint, class string, when time.Time, what app.RichText, notes ...string) *event {
	if when.IsZero() {
		return &event{}
	}
	l.Events = append(l.Events, event{Class: class, When: at.Since(when), Said: what, at: when,
		Notes: nonEmpty(notes...)})
	return &l.Events[len(l.Events)-1]
}

// processText names who did something: "billing on billing-7f9c:17".
func processText(owner, host string, pid int64) app.RichText {
	s := app.RichText{}
	if owner != "" || host == "" {
		s = s.Value(cmp.Or(text.Clip(owner, app.MaxWordShown), "somebody"))
	}
	if host = app.HostPID(host, pid); host != "" {
		if len(s) > 0 {
			s = s.Plain(" on ")
		}
		s = s.Value(host)
	}
	return s
}

// addHold adds what is known of a hold that lasts.
func (l *lockHistory) addHold(p *Pages, r *locks.Row, named bool, at app.Viewpoint) {
	if r.Token == 0 {
		return
	}
	took := processText(r.Owner, r.Hostname, r.PID).Plain(" took it")
	if named {
		took = took.Plain(" as ").Value(text.Clip(r.Name, app.MaxNameShown))
	}
	l.add(at, "held", r.LockedAt, took, text.Visible(text.Clip(r.Purpose, app.MaxLineShown))).URL =
		p.app.URLs.Lock(r.Name, r.UUID)
	if r.Alive != nil {
		progress := ""
		if r.Alive.Progress != "" {
			progress = "progress: " + text.Visible(text.Clip(r.Alive.Progress, app.MaxLineShown))
		}
		l.add(at, "held", r.Alive.At, app.Plain("The last report of the holder"), progress)
	}
	if alert := r.DueAlert; !alert.After(at.AsOf) {
		l.add(at, "alert", alert, app.Plain("Alert: its holder expected to be done by then"))
	}
	if r.ProvenDead() {
		what, how := protocol.WhatEnded(r.Death)
		l.add(at, "alert", protocol.EndedAt(r.Death), app.Plain("The holder ended: "+what+" "+how))
	}
}

// addWaiters adds the waits that last, the first in line first.
func (l *lockHistory) addWaiters(queue []metadata.Waiter, at app.Viewpoint) {
	for i, w := range queue {
		if i == maxHistoryWaiters {
			return
		}
		said := processText(w.Owner, w.Hostname, w.PID).Plain(" started waiting, and is still waiting")
		if more := len(queue) - maxHistoryWaiters; i == maxHistoryWaiters-1 && more > 0 {
			said = said.Plain(", as do " + text.Thousands(more) + " more")
		}
		l.add(at, "waits", w.Since.Time, said)
	}
}

// addPast adds the holds that are over, and the gaps in which nothing was seen.
func (l *lockHistory) addPast(p *Pages, r *app.Request, name string, gaps []timeline.Span, at app.Viewpoint) {
	all, err := p.app.History.Endings(r.Context(), r.Now, name)
	l.ReadError = p.app.ReadErrorText(err)
	l.past = all
	l.More = len(all) > maxHistoryHolds
	var views []endingView
	for i := range all[:min(len(all), maxHistoryHolds)] {
		views = append(views, p.endingView(&all[i], at))
	}
	for _, v := range foldEqual(withGaps(views, gaps, time.Time{}, time.Time{})) {
		switch {
		case v.Gap != nil:
			said := app.Plain("Not watching from ").Time(app.Clock(v.Gap.From)).Plain(" to ").Time(app.Clock(v.Gap.To)).
				Plain(": a hold that began and ended in this time is missing")
			l.Events = append(l.Events, event{Class: "gap", When: at.Since(v.Gap.From), at: v.at, Said: said})
		case !v.at.IsZero():
			l.Events = append(l.Events, endedEvent(&v, name))
		}
	}
}

// endedEvent returns the end of a hold of a lock or of one of its shares.
func endedEvent(v *endingView, lock string) event {
	said := processText(v.Owner, v.Host, 0)
	if v.lock != lock {
		said = said.Plain(" with ").Value(v.Name)
	}
	said = said.Plain(" held it")
	if v.Held != "" {
		said = said.Plain(" for " + v.Held)
		if v.Alerted {
			said = said.Plain(", longer than expected")
		}
	}
	why := text.Visible(v.Why)
	if v.By != "" {
		why = strings.TrimSuffix("by "+text.Visible(v.By)+": "+why, ": ")
	}
	e := event{Class: "ended", When: v.Ended, Badge: v.Word, Said: said, URL: v.URL, at: v.at,
		Notes: nonEmpty(append([]string{text.Visible(v.Purpose), why}, v.Done...)...)}
	for i := range v.Equal {
		e.Equal = append(e.Equal, endedEvent(&v.Equal[i], lock))
		e.First = &e.Equal[i]
	}
	return e
}
