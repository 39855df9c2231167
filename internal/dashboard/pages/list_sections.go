package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
)

// groupView is a section of a list: an owner and the locks of it.
type groupView struct {
	Owner string
	Look  locks.DisplayState
	N     int
	Late  int // alerting
	Dead  int // abandoned
	Gone  int // expired
	Waits int
	Open  bool // it is the only one
	URL   string
	Rest  int // locks that are not shown here
	Table table
}

// maxGroups is how many sections a page has.
const maxGroups = 200

// groupViews are the sections of a list. As many rows are shown as on a page without sections.
func (p *Pages) groupViews(v *listPage, r *site.Request, l ListRequest, found *locks.Result) {
	groups := found.ByOwner()
	left := l.Limit
	v.Owners = len(groups)
	for _, g := range groups[:min(len(groups), maxGroups)] {
		view := groupView{Owner: text.Clip(g.Owner, site.MaxWordShown), Look: g.Display, N: g.Total, Late: g.Alerting,
			Dead: g.Abandoned, Gone: g.Expired, Waits: g.Waiting, Open: len(groups) == 1}
		if g.Owner != "" {
			view.URL = l.link(p.site.URLs, func(l *ListRequest) {
				l.Query.Text = l.Query.With(locks.Exactly("owner", g.Owner))
				l.group = false
			})
		}
		rows := g.Rows[:min(len(g.Rows), left)]
		left -= len(rows)
		view.Rest = g.Total - len(rows)
		view.Table = p.newTable(r, rows, l)
		view.Table.Caption = "Locks of " + text.Visible(view.Owner)
		v.Groups = append(v.Groups, view)
	}
}
