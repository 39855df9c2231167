package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// auditPage is what operators did to whose holds.
type auditPage struct {
	site.SearchPage
	Actions []actionView
	Matched int
	Total   int
	Unread  string // of which clusters etcd could not be asked
	Next    string
}

type actionView struct {
	At             *phrase.Moment
	Actor          string
	Source, Client string
	Agent          string // the person's program
	What           string
	Name, URL      string
	Cluster        string // where there are several
	Holder         string
	Reason, Ticket string
	Result         string
}

// ServeAudit answers with what operators did.
func (p *Pages) ServeAudit(r *site.Request) (site.Answer, error) {
	asked, err := history.Parse(r.URL.Query(), maxLimit)
	if err != nil {
		return site.Answer{}, site.BadQuery(err.Error())
	}
	r.Query(asked.Query)
	all, unread := p.site.OperatorActions(r)
	if unread.Err != nil {
		return site.Answer{}, p.site.NotRead(unread.Err)
	}
	v := auditPage{SearchPage: p.site.SearchPage(r, "audit", asked.Query), Total: len(all), Unread: unread.Why}
	v.JSON = p.site.URLs.To("api/v1/audit", "q", asked.Query.Text)
	found, err := history.SearchActions(r.Context(), asked, all)
	if err != nil {
		return site.Answer{}, err
	}
	v.Matched = found.Matched
	for _, a := range found.List {
		hold := metadata.Record{UUID: a.UUID, Token: a.Token}
		v.Actions = append(v.Actions, actionView{At: v.Since(a.At.Time), Actor: text.Clip(a.Actor, site.MaxLineShown),
			Source: a.Source, Client: text.Clip(a.Client, site.MaxWordShown),
			Agent: text.Clip(a.UserAgent, site.MaxWordShown),
			What:  actionWords(a.Action), Cluster: p.clusterOf(r, a.Cluster),
			Name:   text.Clip(a.Lock, site.MaxNameShown),
			URL:    p.site.URLs.In(a.Cluster).Lock(a.Lock, hold.HistoryID()),
			Holder: text.Clip(a.Holder, 2*site.MaxLineShown),
			Reason: text.Clip(a.Reason, 4*site.MaxReason), Ticket: text.Clip(a.Ticket, 4*site.MaxTicket),
			Result: a.Result})
	}
	if found.Next != (history.Cursor{}) {
		v.Next = p.site.URLs.To("audit", "q", asked.Query.Text, "after", found.Next.String())
	}
	return p.site.Render("audit", v)
}
