package dashboard

import (
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
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
	p, err := history.Parse(r.URL.Query(), maxLimit)
	if err != nil {
		return answer{}, badQuery(err.Error())
	}
	all, err := d.past.Actions(r.Context(), r.now)
	if err != nil {
		return answer{}, d.unread(err)
	}
	v := auditPage{page: d.page(r, "audit"), Total: len(all), searched: d.searches("audit", p.Query)}
	v.page = v.searching(v.page)
	v.Here = "audit"
	v.Follows = true
	v.JSON = d.urls.To("api/v1/audit", "q", p.Query.Text)
	found, matched, next, err := d.past.SearchActions(r.Context(), p, all)
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
	if next != (history.Cursor{}) {
		v.Next = d.urls.To("audit", "q", p.Query.Text, "after", next.String())
	}
	body, err := d.render("audit", v)
	return answer{Type: typeHTML, Body: body}, err
}
