package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// auditPage is who ended whose holds.
type auditPage struct {
	site.Page
	Actions []actionView
	Matched int
	Total   int
	Next    string
	site.SearchBox
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

func (d *Pages) ServeAudit(r *site.Request) (site.Answer, error) {
	p, err := history.Parse(r.URL.Query(), maxLimit)
	if err != nil {
		return site.Answer{}, site.BadQuery(err.Error())
	}
	all, err := d.History.Actions(r.Context(), r.Now)
	if err != nil {
		return site.Answer{}, d.NotRead(err)
	}
	v := auditPage{Page: d.Page(r, "audit"), Total: len(all), SearchBox: d.Search("audit", p.Query)}
	v.Page = v.On(v.Page)
	v.Here = "audit"
	v.Follows = true
	v.JSON = d.Urls.To("api/v1/audit", "q", p.Query.Text)
	found, matched, next, err := d.History.SearchActions(r.Context(), p, all)
	if err != nil {
		return site.Answer{}, err
	}
	v.Matched = matched
	for _, a := range found {
		hold := metadata.Record{UUID: a.UUID, Token: a.Token}
		v.Actions = append(v.Actions, actionView{At: v.Since(a.At.Time), Actor: text.Clip(a.Actor, site.MaxLineShown),
			Source: a.Source, Client: text.Clip(a.Client, site.MaxWordShown),
			Agent: text.Clip(a.UserAgent, site.MaxWordShown),
			Name:  text.Clip(a.Lock, site.MaxNameShown),
			URL:   d.Urls.Lock(a.Lock, hold.HistoryID()), Holder: text.Clip(a.Holder, 2*site.MaxLineShown),
			Reason: text.Clip(a.Reason, 4*site.MaxReason), Ticket: text.Clip(a.Ticket, 4*site.MaxTicket),
			Result: a.Result})
	}
	if next != (history.Cursor{}) {
		v.Next = d.Urls.To("audit", "q", p.Query.Text, "after", next.String())
	}
	body, err := d.Render("audit", v)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}
