package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
)

// ownersPage is the services that hold locks.
type ownersPage struct {
	site.Page
	Owners []ownerView
	Total  int
	More   int
	site.SearchBox
}

// ownerView sums up the locks of one service.
type ownerView struct {
	Name, URL string
	Look      locks.DisplayState // the worst
	locks.Counts
	Waiters int // that wait for its locks
	Late    int // alerting, abandoned or expired
	Since   *phrase.Moment
	Wait    *phrase.Moment
}

const maxOwners = 500

func (d *Pages) ServeOwners(r *site.Request) (site.Answer, error) {
	s, err := r.Loaded()
	if err != nil {
		return site.Answer{}, err
	}
	q := locks.ParseQuery(r.URL.Query().Get("q"))
	v := ownersPage{Page: d.Page(r, "owners"), SearchBox: d.Search("owners", q)}
	v.Page = v.On(v.Page)
	v.Here = "owners"
	v.Follows = true
	v.JSON = d.Urls.To("api/v1/locks", "q", q.Text, "sort", "owner")
	found, err := s.Result(r.Context(), q, locks.Order{By: locks.MostUrgent}, v.AsOf)
	if err != nil {
		return site.Answer{}, err
	}
	for _, g := range found.ByOwner() {
		o := ownerView{Name: text.Clip(g.Owner, site.MaxWordShown), Look: g.Display, Counts: g.Counts,
			Waiters: g.Waiting,
			Late:    g.Late(), Since: v.Lasting(g.Oldest), Wait: v.Lasting(g.Longest)}
		if g.Owner != "" {
			o.URL = d.Urls.To("", "q", locks.Exactly("owner", g.Owner))
		}
		v.Owners = append(v.Owners, o)
	}
	v.Total = len(v.Owners)
	v.More = max(0, v.Total-maxOwners)
	v.Owners = v.Owners[:v.Total-v.More]
	body, err := d.Render("owners", v)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}
