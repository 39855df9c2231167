package pages

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// Headline is what a person must know first, as a page says it.
type Headline struct {
	headline.Headline
	Summary, Details app.RichText
	Step             Link   // what to do next; no address: nothing
	Command          string // the same on the command line
	IsExternal       bool   // the step leads to another site
	More             []Link

	Acknowledge string // where the caller can acknowledge it; empty: not at all
}

func (v Headline) String() string {
	said := v.Summary.String()
	if v.Details != nil {
		said += " " + v.Details.String()
	}
	return said + v.MoreText()
}

// Headline returns the headline of all locks. They were ranked when their snapshot was made, so it does not look at
// each of them.
func (p *Pages) Headline(r *app.Request) Headline {
	said := headline.For(p.headlineInput(r))
	v := p.view(r, said, r.Viewpoint())
	for _, m := range said.More {
		link := Link{m.String(), classURL(p.app.URLs, m.Class)}
		if n := len(v.More); n > 0 && v.More[n-1].URL == link.URL {
			v.More[n-1].Text += ", " + link.Text
			continue
		}
		v.More = append(v.More, link)
	}
	for _, l := range said.Inconsistent {
		v.More = append(v.More, Link{l.String(), p.app.URLs.Lock(l.Name, "")})
	}
	return v
}

// acknowledgeURL returns the form that acknowledges the lock of a headline; empty if it needs no attention or is
// acknowledged already.
func (p *Pages) acknowledgeURL(r *app.Request, v Headline) string {
	if v.Holder == nil || v.Class.Section() != locks.NeedsYou || v.Holder.ValidAcknowledgement(r.Now) != nil ||
		!canDo(r, protocol.VerbAcknowledge, v.Holder) {
		return ""
	}
	return p.app.URLs.Action("acknowledge", v.Holder.Name, v.Holder.UUID)
}

// HeadlineOf returns the headline of one lock; omitName is for a page that has the name above it. Its Summary is nil if
// there is nothing to say.
func (p *Pages) HeadlineOf(r *app.Request, lock *app.Lock, omitName bool) Headline {
	input := p.headlineInput(r)
	input.OmitName = omitName
	var held *locks.HeldLock
	name := lock.Name
	switch {
	case lock.Ending != nil:
		return Headline{}
	case lock.Row != nil:
		name = lock.Row.Name
		held = new(locks.NewHeldLock(name, []*locks.Row{lock.Row}))
	case len(lock.Shares) > 0:
		held = new(locks.NewHeldLock(name, lock.Shares))
	}
	said, ok := headline.ForLock(input, name, held)
	if !ok {
		return Headline{}
	}
	return p.view(r, said, lock.Viewpoint(r.Viewpoint()))
}

func (p *Pages) headlineInput(r *app.Request) headline.Input {
	s := r.Snapshot()
	c := headline.InputOf(s, p.app.Config.View.Unlockers(), r.Viewpoint().AsOf)
	if r.Level() == locks.Stale {
		c.SilentSince, c.SilenceCause = r.Fresh.HeardAt, r.Fresh.Class
	} else {
		c.Alarm = p.app.Config.Alarm()
	}
	c.Unclaimed = p.Unclaimed(r)
	return c
}

func (p *Pages) view(r *app.Request, said headline.Headline, at app.Viewpoint) Headline {
	if said.Class == locks.ClassStale {
		at = app.LiveAt(r.Now) // the silence goes on
	}
	v := Headline{Headline: said}
	v.Summary = p.sentenceAt(said.Summary, at)
	if said.Details != nil {
		v.Details = p.sentenceAt(said.Details, at)
	}
	v.Command = said.Command()
	v.Step = p.stepLink(r, said.Holder, &said, said.Next())
	v.IsExternal = said.Next() == headline.ReadRunbook
	if v.Step.URL == "" && said.Next() != headline.NoStep {
		v.Step = Link{"What to do", p.app.URLs.Lock(said.Lock, "")}
	}
	return v
}

// sentenceAt returns a sentence as a page says it, whose locks are links.
func (p *Pages) sentenceAt(parts diagnosis.Sentence, at app.Viewpoint) (said app.RichText) {
	for _, part := range parts {
		switch {
		case !part.Since.IsZero():
			said = said.Time(at.Elapsed(part.Since))
		case !part.Until.IsZero():
			said = said.Time(dueAt(at, part.Until))
		case part.Lock != "":
			said = said.Link(text.Clip(part.Lock, app.MaxNameShown), p.app.URLs.Lock(part.Lock, ""))
		case part.Value != "":
			said = said.Value(text.Clip(part.Value, app.MaxNameShown))
		default:
			said = said.Plain(part.Text)
		}
	}
	return said
}

// dueAt returns the time left until an instant, which is due when it has passed.
func dueAt(at app.Viewpoint, t time.Time) *app.TimeText {
	m := at.Next(t)
	switch m.Kind {
	case "over": // the snapshot is a moment old
		return &app.TimeText{At: t, Text: "due"}
	case "":
		return &app.TimeText{At: t, Text: "was due"}
	}
	return m
}

// classURL returns the address of the page, or of the search, that shows what is in a class.
func classURL(u app.URLs, c locks.Class) string {
	switch c {
	case locks.ClassStale, locks.ClassUnlockers:
		return u.To("status")
	case locks.ClassDeadlock, locks.ClassUnclaimed:
		return u.To("waiting")
	}
	return u.To("", "q", map[locks.Class]string{
		locks.ClassOverdue:   "state:expired,abandoned",
		locks.ClassDead:      "state:abandoned",
		locks.ClassSilent:    "state:alerting",
		locks.ClassLate:      "state:alerting",
		locks.ClassMalformed: "state:malformed",
	}[c])
}

// Unclaimed returns the locks that nobody takes although somebody waits, those that have been free for longest first.
// While etcd is silent, only those count that were unclaimed before.
func (p *Pages) Unclaimed(r *app.Request) []diagnosis.Unclaimed {
	at := r.Viewpoint()
	return slices.DeleteFunc(slices.Clone(r.Snapshot().Unclaimed), func(l diagnosis.Unclaimed) bool {
		return at.Stale && at.AsOf.Sub(l.Since) < diagnosis.MinFree
	})
}
