package dashboard

import (
	"cmp"
	"net/http"
	"slices"
)

// ownersPage is the services that hold locks.
type ownersPage struct {
	page
	Owners   []ownerView
	Total    int
	More     int
	Text     string
	Problems []queryProblem
	Path     string
	Clear    string
}

// ownerView sums up the locks of one service.
type ownerView struct {
	Name, URL string
	Look      look // the worst
	counts
	Waiters int // that wait for its locks
	Late    int // alerting or expired
	Since   *moment
	Wait    *moment
}

const maxOwners = 500

func (d *Dashboard) owners(r *http.Request) (answer, error) {
	s, err := d.loaded()
	if err != nil {
		return answer{}, err
	}
	q := parseQuery(r.URL.Query().Get("q"))
	v := ownersPage{page: d.page(callerOf(r), "owners"), Text: boxText(q.text), Problems: q.problems, Path: d.urls.To("owners"), Clear: d.urls.To("owners")}
	v.Here, v.Follows = "owners", true
	all := map[string]*ownerView{}
	for _, row := range s.result(q, order{by: mostUrgent}, v.now).rows { // so the first one is the worst
		o := all[row.Owner]
		if o == nil {
			o = &ownerView{Name: row.Owner, Look: row.look}
			all[row.Owner] = o
		}
		o.add(row)
	}
	for _, o := range all {
		o.Waiters, o.Late, o.Since, o.Wait = o.Waiting, o.Alerting+o.Expired, v.age(o.Oldest), v.age(o.Longest)
		if o.Name != "" {
			o.URL = d.urls.To("", "q", fieldTerm("owner", o.Name))
		}
		o.Name = clip(o.Name, maxWordShown)
		v.Owners = append(v.Owners, *o)
	}
	slices.SortFunc(v.Owners, func(a, b ownerView) int {
		return cmp.Or(cmp.Compare(a.Look.urgency(), b.Look.urgency()), cmp.Compare(b.Late, a.Late), cmp.Compare(b.Waiters, a.Waiters),
			cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	v.Total = len(v.Owners)
	v.More = max(0, v.Total-maxOwners)
	v.Owners = v.Owners[:v.Total-v.More]
	body, err := d.render("owners", v)
	return answer{Type: typeHTML, Body: body}, err
}
