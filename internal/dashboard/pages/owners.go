package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/lockorder"
	"github.com/clustermutex/unlocker/internal/text"
)

// ownersPage is the services that hold locks.
type ownersPage struct {
	site.SearchPage
	Owners []ownerView
	Total  int
	More   int
}

// ownerView sums up the locks of one service.
type ownerView struct {
	Name, URL string
	Look      locks.DisplayState // the worst
	Total     int
	In        []stateCount // of its locks that need a person
	Waiters   int          // that wait for its locks
	Late      int          // alerting, abandoned or expired
	Since     *phrase.Moment
	Wait      *phrase.Moment
	Past      string // the timeline of its locks
}

const maxOwners = 500

// ServeOwners answers with the services that hold locks.
func (p *Pages) ServeOwners(r *site.Request) (site.Answer, error) {
	s, err := r.Loaded()
	if err != nil {
		return site.Answer{}, err
	}
	q := r.Query(locks.ParseQuery(r.URL.Query().Get("q")))
	v := ownersPage{SearchPage: p.site.SearchPage(r, "owners", q)}
	v.JSON = p.site.URLs.To("api/v1/locks", "q", q.Text, "sort", "owner")
	found, err := s.Result(r.Context(), q, lockorder.Order{By: lockorder.MostUrgent}, v.AsOf)
	if err != nil {
		return site.Answer{}, err
	}
	groups := found.ByOwner()
	for _, g := range groups {
		o := ownerView{Name: text.Clip(g.Owner, site.MaxWordShown), Look: g.Display, Total: g.Total,
			In: troubles(&g.Counts), Waiters: g.Waiting, Late: g.Late(),
			Since: v.Lasting(g.Oldest), Wait: v.Lasting(g.Longest)}
		if g.Owner != "" {
			its := locks.ParseQuery(q.OnlyClusters()).With(locks.Exactly("owner", g.Owner))
			o.URL = p.site.URLs.To("", "q", its)
			o.Past = p.site.URLs.To("timeline", "q", its)
		}
		v.Owners = append(v.Owners, o)
	}
	v.Total = len(v.Owners)
	v.More = max(0, v.Total-maxOwners)
	v.Owners = v.Owners[:v.Total-v.More]
	return p.site.Render("owners", v)
}
