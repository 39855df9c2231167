package dashboard

import (
	"cmp"
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/text"
)

// group is the locks of one owner in a result.
type group struct {
	owner string
	look  look // the worst
	counts
	rows []*row // the first ones, in the order of the result
}

// late is how many need a person.
func (g *group) late() int { return g.Alerting + g.Expired }

// maxGroupRows is how many rows of a group are kept: more are a list of their own.
const maxGroupRows = 50

// byOwner divides the result among owners, who needs a person first. It is done once for all who ask.
func (r *result) byOwner() []*group {
	r.grouping.Do(func() {
		all := map[string]*group{}
		for _, row := range r.rows {
			g := all[row.Owner]
			if g == nil {
				g = &group{owner: row.Owner, look: row.look}
				all[row.Owner] = g
				r.groups = append(r.groups, g)
			}
			if g.add(row); row.look.urgency() < g.look.urgency() {
				g.look = row.look
			}
			if len(g.rows) < maxGroupRows {
				g.rows = append(g.rows, row)
			}
		}
		slices.SortFunc(r.groups, func(a, b *group) int {
			return cmp.Or(cmp.Compare(a.look.urgency(), b.look.urgency()), cmp.Compare(b.late(), a.late()),
				cmp.Compare(b.Waiting, a.Waiting),
				cmp.Compare(b.Total, a.Total), cmp.Compare(a.owner, b.owner))
		})
	})
	return r.groups
}

// groupView is a section of a list: an owner and the locks of it.
type groupView struct {
	Owner string
	Look  look
	N     int
	Late  int // alerting
	Gone  int // expired
	Waits int
	Open  bool // it is the only one
	URL   string
	Rest  int // locks that are not shown here
	Sheet sheet
}

// maxGroups is how many sections a page has.
const maxGroups = 200

// groupViews are the sections of a list. As many rows are shown as on a page without sections.
func (d *Dashboard) groupViews(v *listPage, c access.Caller, l listRequest, found *result) {
	groups := found.byOwner()
	left := l.limit
	v.Owners = len(groups)
	for _, g := range groups[:min(len(groups), maxGroups)] {
		view := groupView{Owner: text.Clip(g.owner, maxWordShown), Look: g.look, N: g.Total, Late: g.Alerting,
			Gone: g.Expired, Waits: g.Waiting, Open: len(groups) == 1}
		if g.owner != "" {
			view.URL = l.link(d.urls, func(l *listRequest) {
				l.query.text = l.query.with(exactly("owner", g.owner))
				l.group = false
			})
		}
		rows := g.rows[:min(len(g.rows), left)]
		left -= len(rows)
		view.Rest = g.Total - len(rows)
		view.Sheet = d.sheet(c, rows, v.Viewpoint, l)
		view.Sheet.Caption = "Locks of " + text.Visible(view.Owner)
		v.Groups = append(v.Groups, view)
	}
}
