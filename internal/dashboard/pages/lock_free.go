package pages

import (
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// freePage is the page of a lock without a holder. Any name has such a page, whether it was ever held or not.
type freePage struct {
	lockFrame
	State    metadata.State // a class of the header: unclaimed, unknown or free
	Sentence app.RichText   // who holds it: nobody; and who waits
	Last     app.RichText   // the hold before
	Commands []string
	Leased   []*locks.Row // of other libraries, with this name
}

// stateUnknown is that of a lock that nobody held when etcd was last heard.
const stateUnknown metadata.State = "unknown"

func (p *Pages) serveFree(r *app.Request, lock *app.Lock) (app.Answer, error) {
	v := freePage{lockFrame: p.lockFrame(r, lock), State: metadata.StateFree}
	at := lock.Viewpoint(r.Viewpoint())
	if at.Stale || lock.ReadError != "" {
		v.State = stateUnknown
	}
	v.AutoRefresh = true
	if v.Leased = r.Snapshot().LeasedNamed(lock.Name); len(v.Leased) > 0 {
		v.State = locks.LeasedState
		v.JSON = p.app.URLs.To("api/v1/locks", "q", locks.Exactly("name", lock.Name))
		v.Sentence = app.Plain("Another library created its keys; they expire with their leases.")
		return p.app.Render("free", v)
	}
	if problem := metadata.CheckName(lock.Name); problem != nil && v.History.last() == nil && v.Queue.N == 0 {
		return app.Answer{}, app.BadQuery("No lock can have this name: " + problem.Error())
	}
	v.Query = lock.Name // to search for
	if lock.ReadError != "" {
		v.Sentence = app.Plain("This lock was not held when etcd was last read, and etcd cannot be read now: ").
			Value(lock.ReadError).Plain(".")
	} else if said := p.HeadlineOf(r, lock, true); said.Class == locks.ClassUnclaimed && len(v.Delays.First) == 0 {
		v.State = metadata.StateUnclaimed
		v.Icon = metadata.StateAlerting
		v.Sentence = said.Summary
	} else {
		v.Sentence = freeSentence(v.Queue.N, len(v.Delays.First) > 0, at)
	}
	if v.Last = lastHold(v.History.last(), at); v.Last == nil {
		v.Last = app.Plain("This dashboard knows of no earlier hold.")
	}
	v.Commands = []string{text.Mutexctl("history", lock.Name), text.Mutexctl("show", lock.Name)}
	return p.app.Render("free", v)
}

// freeSentence says that nobody holds a lock, and who waits.
func freeSentence(waiting int, delayed bool, at app.Viewpoint) app.RichText {
	s := app.RichText{}
	if at.Stale {
		s = s.Plain("As of ").Time(app.Clock(at.AsOf)).Plain(": ")
	}
	switch {
	case waiting == 0:
		return s.Plain("Nobody holds this lock or waits for it.")
	case delayed:
		return s.Plain("Nobody holds this lock. " + app.Plural(waiting, "waiter is", "waiters are") +
			" in line until the lock delay is over.")
	}
	return s.Plain("Nobody holds this lock now. " + app.Plural(waiting, "waiter is", "waiters are") +
		" in line; the first is about to take it.")
}

// lastHold returns who held the lock last and how that ended; nil if that is not known.
func lastHold(e *metadata.Ending, at app.Viewpoint) app.RichText {
	if e == nil {
		return nil
	}
	s := app.Plain("Last held by ").Append(processText(e.Owner, e.Hostname, e.PID))
	if !e.LockedAt.IsZero() && !e.EndedAt.Before(e.LockedAt.Time) {
		s = s.Plain(" for " + text.Duration(e.EndedAt.Sub(e.LockedAt.Time)))
	}
	how, _ := metadata.EndingWordsFor(e.Cause)
	s = s.Plain(", " + text.Visible(text.Clip(how.Verb, app.MaxWordShown)))
	if e.By != "" {
		s = s.Plain(" by ").Value(text.Clip(e.By, app.MaxLineShown))
	}
	s = s.Plain(" ").Time(at.Since(e.EndedAt.Time))
	if e.Reason != "" {
		s = s.Plain(": " + text.Visible(text.Clip(e.Reason, app.MaxLineShown)))
	}
	return s.Plain(".")
}

type endedView struct {
	Word    string
	When    *app.TimeText
	By, Why string
}

func (p *Pages) endedPage(r *app.Request, lock *app.Lock) lockPage {
	e := lock.Ending
	v := lockPage{lockFrame: p.lockFrame(r, lock), State: "released", Purpose: e.Purpose, Free: lock.Row == nil}
	v.Ended = &endedView{Word: locks.EndedWord(e.Cause), When: v.Age(e.EndedAt.Time), By: e.By, Why: e.Reason}
	if lock.Row != nil {
		v.Current = p.app.URLs.Lock(lock.Name, lock.Row.UUID)
		v.Sentence = holderText(lock.Row, lock.Viewpoint(v.Viewpoint))
	}
	v.Done = protocol.DescribePastActions(e, v.Viewpoint.Now)
	v.Facts = append([]fact{{"hold", e.UUID}, {"fencing token", app.NumberOrEmpty(e.Token)}},
		holderFacts(&e.Identity)...)
	v.Facts = withoutEmpty(append(v.Facts, fact{"last progress", e.Progress}))
	for _, t := range []struct {
		label string
		at    time.Time
	}{{"locked", e.LockedAt.Time}, {"alert", e.AlertAt.Time}, {"last report", e.AliveAt.Time},
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
