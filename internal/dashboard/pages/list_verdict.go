package pages

import (
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// Verdict is what a person must know first, as a page says it.
type Verdict struct {
	verdict.Verdict
	Lead, Then app.Sentence
	Step       choice // what to do next; no address: nothing
	Command    string // the same on the command line
	Away       bool   // the step leads to another site
	More       []choice
}

// String is all of it in one line.
func (v Verdict) String() string {
	said := v.Lead.String()
	if v.Then != nil {
		said += " " + v.Then.String()
	}
	return said + v.Also()
}

// Verdict says what a person must know first of all locks. The locks were ranked when their snapshot was made, so that
// it costs no look at all of them.
func (p *Pages) Verdict(r *app.Request) Verdict {
	said := verdict.Of(p.situation(r))
	v := p.view(r, said, r.Viewpoint())
	for _, m := range said.More {
		v.More = append(v.More, choice{m.String(), p.app.URLs.To(found(m.Class))})
		if q := searched(m.Class); q != "" {
			v.More[len(v.More)-1].URL = p.app.URLs.To("", "q", q)
		}
	}
	return v
}

// VerdictOf says what a person must know first of one lock. Its Lead is nil where there is nothing to say.
func (p *Pages) VerdictOf(r *app.Request, lock *app.Lock) Verdict {
	var held *verdict.Lock
	name := lock.Name
	waiting := verdict.QueueOf(lock.InLine, lock.Viewpoint(r.Viewpoint()).AsOf)
	switch {
	case lock.Ending != nil:
		return Verdict{}
	case lock.Row != nil:
		name = lock.Row.Name
		held = new(locks.Whole(name, []*locks.Row{lock.Row}, waiting))
	case len(lock.Shares) > 0:
		held = new(locks.Whole(name, lock.Shares, waiting))
	}
	said, ok := verdict.OfLock(p.situation(r), name, held)
	if !ok {
		return Verdict{}
	}
	return p.view(r, said, lock.Viewpoint(r.Viewpoint()))
}

// situation is what is known of all locks.
func (p *Pages) situation(r *app.Request) verdict.Cluster {
	s := r.Snapshot()
	c := s.Cluster(protocol.Presences(p.app.Unlockers()), r.Viewpoint().AsOf)
	if r.Level() == locks.Stale {
		c.Heard, c.Why = r.Fresh.HeardAt, r.Fresh.Class
	} else {
		c.Alarm = p.app.Config.Alarm()
		c.Unclaimed = s.Unclaimed
	}
	return c
}

// view is a verdict as a page says it.
func (p *Pages) view(r *app.Request, said verdict.Verdict, at app.Viewpoint) Verdict {
	if said.Class == verdict.Stale {
		at = app.LiveAt(r.Now) // the silence goes on
	}
	u := p.app.URLs
	v := Verdict{Verdict: said}
	v.Lead = p.sentenceAt(said.Lead, at)
	if said.Then != nil {
		v.Then = p.sentenceAt(said.Then, at)
	}
	v.Command = said.Command()
	v.Step.Text = said.Next.Words()
	switch said.Next {
	case verdict.LookAtView:
		v.Step.URL = u.To("status")
	case verdict.ReadRunbook:
		v.Step.URL = said.Runbook()
		v.Away = true
	case verdict.LookAtCycle:
		v.Step.URL = u.To("waiting")
	case verdict.LookAtLock, verdict.SeeProblems:
		v.Step.URL = u.Lock(said.Lock, "")
	case verdict.Force, verdict.GiveTime:
		v.Step = formFor(r, said)
	}
	return v
}

// formFor leads to the form of the next step, if the caller may take it and it makes sense; else to the lock's page.
func formFor(r *app.Request, said verdict.Verdict) choice {
	row := &locks.Row{Record: said.Holder}
	if said.Next == verdict.Force && r.MayDo(protocol.VerbForceUnlock, row.Owner) && !row.Misplaced {
		return choice{said.Next.Words(), r.App.URLs.Act("unlock", row.Name, row.UUID, "")}
	}
	if said.Next == verdict.GiveTime {
		for _, link := range MarkLinks(r, row) {
			return choice(link)
		}
	}
	return choice{"Look at the lock", r.App.URLs.Lock(said.Lock, "")}
}

// sentenceAt is a sentence as a page says it, whose locks are links.
func (p *Pages) sentenceAt(parts diagnosis.Sentence, at app.Viewpoint) (said app.Sentence) {
	for _, part := range parts {
		switch {
		case !part.Since.IsZero():
			said = said.Time(at.Lasting(part.Since))
		case !part.Until.IsZero():
			said = said.Time(dueAt(at, part.Until))
		case part.Lock != "":
			said = said.Link(text.Clip(part.Lock, app.MaxNameShown), p.app.URLs.Lock(part.Lock, ""))
		case part.Value != "":
			said = said.Value(text.Clip(part.Value, app.MaxNameShown))
		default:
			said = said.Say(part.Text)
		}
	}
	return said
}

// dueAt is the time left until an instant, which is due when it has passed.
func dueAt(at app.Viewpoint, t time.Time) *app.Moment {
	m := at.Next(t)
	switch m.Kind {
	case "over": // the snapshot is a moment old
		return &app.Moment{At: t, Text: "due"}
	case "":
		return &app.Moment{At: t, Text: "was due, outcome unknown"}
	}
	return m
}

// found is the page on which what is in a class is found, by its path; the list where it is empty.
func found(c verdict.Class) string {
	switch c {
	case verdict.Stale, verdict.Unlockers:
		return "status"
	case verdict.Deadlock, verdict.Unclaimed:
		return "waiting"
	}
	return ""
}

// searched is the search that finds the locks of a class, and perhaps others in their state.
func searched(c verdict.Class) string {
	switch c {
	case verdict.Overdue:
		return "state:expired,abandoned"
	case verdict.Dead:
		return "state:abandoned"
	case verdict.Silent, verdict.Late:
		return "state:alerting"
	case verdict.Malformed:
		return "state:malformed"
	}
	return ""
}

// Unclaimed are the locks that nobody takes although somebody waits, those that have been free for longest first. None
// is known while etcd is silent.
func (p *Pages) Unclaimed(r *app.Request) []diagnosis.Unclaimed {
	if r.Viewpoint().Stale {
		return nil
	}
	return r.Snapshot().Unclaimed
}
