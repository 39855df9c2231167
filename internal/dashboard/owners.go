package dashboard

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
)

// ownersPage is the services that hold locks.
type ownersPage struct {
	page
	Owners []ownerView
	Total  int
	More   int
	searched
}

// ownerView sums up the locks of one service.
type ownerView struct {
	Name, URL string
	Look      locks.DisplayState // the worst
	locks.Counts
	Waiters int // that wait for its locks
	Late    int // alerting or expired
	Since   *phrase.Moment
	Wait    *phrase.Moment
}

const maxOwners = 500

func (d *Dashboard) owners(r *request) (answer, error) {
	s, err := r.loaded()
	if err != nil {
		return answer{}, err
	}
	q := locks.ParseQuery(r.URL.Query().Get("q"))
	v := ownersPage{page: d.page(r, "owners"), searched: d.searches("owners", q)}
	v.page = v.searching(v.page)
	v.Here = "owners"
	v.Follows = true
	v.JSON = d.urls.To("api/v1/locks", "q", q.Text, "sort", "owner")
	found, err := s.Result(r.Context(), q, locks.Order{By: locks.MostUrgent}, v.AsOf)
	if err != nil {
		return answer{}, err
	}
	for _, g := range found.ByOwner() {
		o := ownerView{Name: text.Clip(g.Owner, maxWordShown), Look: g.Display, Counts: g.Counts, Waiters: g.Waiting,
			Late: g.Late(), Since: v.Lasting(g.Oldest), Wait: v.Lasting(g.Longest)}
		if g.Owner != "" {
			o.URL = d.urls.To("", "q", locks.Exactly("owner", g.Owner))
		}
		v.Owners = append(v.Owners, o)
	}
	v.Total = len(v.Owners)
	v.More = max(0, v.Total-maxOwners)
	v.Owners = v.Owners[:v.Total-v.More]
	body, err := d.render("owners", v)
	return answer{Type: typeHTML, Body: body}, err
}
