package pages

import (
	"strconv"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// StepView is a step as the page of a lock shows it: with a link if the caller may take it there, else with commands.
type StepView struct {
	Number   string // an exclamation mark for the last resort
	Title    string
	Effect   app.RichText
	Commands []string
	Link     Link
	WhyNot   string // why there is no link
}

func (s StepView) IsLast() bool { return s.Number == "!" }

// StepViews returns the steps of a headline about a lock, which concern the hold in row.
func (p *Pages) StepViews(r *app.Request, lock *app.Lock, row *locks.Row, said *headline.Headline) []StepView {
	views := make([]StepView, 0, len(said.Steps))
	at := lock.Viewpoint(r.Viewpoint())
	for i := range said.Steps {
		s := &said.Steps[i]
		v := StepView{Number: strconv.Itoa(i + 1), Title: s.Title, Effect: p.sentenceAt(s.Effect, at)}
		v.Link = p.stepLink(r, row.Record, said, s.Kind)
		if s.Kind == headline.ForceUnlock {
			v.Number = "!"
			v.WhyNot = p.whyNoForce(r, lock, row.Owner)
		}
		if s.Kind.Verb() != "" && lock.IsOutdated(r.Viewpoint()) {
			v.Link = Link{}
		}
		if v.Link.URL == "" && v.WhyNot == "" {
			v.Commands = s.Commands
		}
		views = append(views, v)
	}
	return views
}

// stepLink leads to where the caller can take the step; nowhere if there is no such page, or if they may not. hold is
// what the step is about; nil: none.
func (p *Pages) stepLink(r *app.Request, hold *metadata.Record, said *headline.Headline, kind headline.StepKind) Link {
	l := Link{Text: kind.Words()}
	switch u, verb := p.app.URLs, kind.Verb(); {
	case kind == headline.LookAtView:
		l.URL = u.To("status")
	case kind == headline.LookAtCycle:
		l.URL = u.To("waiting")
	case kind == headline.ReadRunbook:
		l.URL = said.Runbook()
	case verb != "" && hold != nil && canDo(r, verb, hold):
		l.URL = u.Action(ActionPage(verb), hold.Name, hold.UUID)
	}
	return l
}

// ActionPage returns the path of the form of a verb, below the prefix.
func ActionPage(verb protocol.Verb) string {
	if verb == protocol.VerbForceUnlock {
		return "unlock"
	}
	return string(verb)
}

// whyNoForce returns why the caller cannot end the hold by force here; empty if they can, or if nobody can.
func (p *Pages) whyNoForce(r *app.Request, lock *app.Lock, owner string) string {
	c := r.Caller
	switch {
	case !p.app.Config.IsEnabled(protocol.VerbForceUnlock):
		return ""
	case !c.MaySome(access.Unlock):
		return "Force unlock needs the permission unlock."
	case !c.MayFor(access.Unlock, owner):
		return "You may force-unlock other owners' locks only."
	case lock.IsOutdated(r.Viewpoint()):
		return "No force unlock now: etcd does not answer, so what you see may be out of date."
	}
	return ""
}

// links returns the configured links for a lock, except those that values of its record would lead elsewhere.
func (p *Pages) links(r *locks.Row) []Link {
	list := make([]Link, 0, len(p.app.Config.Links))
	for _, l := range p.app.Config.Links {
		if address := l.URL(r); address != "" {
			list = append(list, Link{l.Text, address})
		}
	}
	return list
}
