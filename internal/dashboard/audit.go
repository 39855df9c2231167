package dashboard

import (
	"context"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// auditPage is who ended whose holds.
type auditPage struct {
	page
	Actions []actionView
	Matched int
	Total   int
	Next    string
	searched
}

type actionView struct {
	At             *phrase.Moment
	Actor          string
	Source, Client string
	Agent          string // the person's program
	Name, URL      string
	Holder         string
	Reason, Ticket string
	Result         string
}

func (d *Dashboard) audit(r *request) (answer, error) {
	p, err := parsePast(r, maxLimit)
	if err != nil {
		return answer{}, err
	}
	all, err := d.actions(r)
	if err != nil {
		return answer{}, d.unread(err)
	}
	v := auditPage{page: d.page(r, "audit"), Total: len(all), searched: d.searches("audit", p.query)}
	v.page = v.searching(v.page)
	v.Here = "audit"
	v.Follows = true
	v.JSON = d.urls.To("api/v1/audit", "q", p.query.Text)
	found, matched, next, err := d.foundActions(r.Context(), p, all)
	if err != nil {
		return answer{}, err
	}
	v.Matched = matched
	for _, a := range found {
		hold := metadata.Record{UUID: a.UUID, Token: a.Token}
		v.Actions = append(v.Actions, actionView{At: v.Since(a.At.Time), Actor: text.Clip(a.Actor, maxLineShown),
			Source: a.Source, Client: text.Clip(a.Client, maxWordShown), Agent: text.Clip(a.UserAgent, maxWordShown),
			Name: text.Clip(a.Lock, maxNameShown),
			URL:  d.urls.Lock(a.Lock, hold.HistoryID()), Holder: text.Clip(a.Holder, 2*maxLineShown),
			Reason: text.Clip(a.Reason, 4*maxReason), Ticket: text.Clip(a.Ticket, 4*maxTicket), Result: a.Result})
	}
	if next != (pastCursor{}) {
		v.Next = d.urls.To("audit", "q", p.query.Text, "after", next.String())
	}
	body, err := d.render("audit", v)
	return answer{Type: typeHTML, Body: body}, err
}

// foundActions is one page of the actions that the request asks for. Words are searched in the lock, the actor, the
// holder and the reason; owner: is the actor, host: the client, purpose: the reason. The error says that the search was
// stopped.
func (d *Dashboard) foundActions(ctx context.Context, p pastRequest,
	all []metadata.Action) (list []metadata.Action, matched int, next pastCursor, err error) {
	ctx, cancel := locks.WithLimit(ctx)
	defer cancel()
	for _, a := range all {
		if err := locks.Stopped(ctx); err != nil {
			return nil, 0, pastCursor{}, err
		}
		r := metadata.Record{Name: a.Lock, UUID: a.UUID, Token: a.Token, Owner: a.Actor, Hostname: a.Client,
			Purpose: a.Reason + "\n" + a.Ticket + "\n" + a.Holder}
		row := locks.NewRow(&r, d.config.Policy, staleness.Moment{Wall: a.At.Time}, locks.Queue{}, nil)
		if !p.during(a.At.Time) || !p.query.Matches(row, a.At.Time) {
			continue
		}
		if matched++; !p.after.behind(a.At.Time, a.Token) {
			continue
		}
		if len(list) == p.limit {
			if next.at.IsZero() {
				next = pastCursor{list[len(list)-1].At.Time, list[len(list)-1].Token}
			}
			continue
		}
		list = append(list, a)
	}
	return list, matched, next, nil
}
