package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// groupView is a section of a list: an owner and the locks of it.
type groupView struct {
	Owner string
	Look  locks.DisplayState
	N     int
	In    []stateCount // of its locks that need a person
	Waits int
	Open  bool // it is the only one
	URL   string
	Rest  int // locks that are not shown here
	Table table
}

// stateCount is how many locks are in a state.
type stateCount struct {
	State staleness.State
	N     int
}

// troubles counts the locks that are not just held.
func troubles(c *locks.Counts) (all []stateCount) {
	for _, s := range staleness.States() {
		if s != staleness.Held {
			all = append(all, stateCount{s, c.In(s)})
		}
	}
	return all
}

// maxGroups is how many sections a page has.
const maxGroups = 200

// groupViews are the sections of a list. As many rows are shown as on a page without sections.
func (p *Pages) groupViews(v *listPage, r *site.Request, l ListRequest, found *locks.Result) {
	groups := found.ByOwner()
	left := l.Limit
	v.Owners = len(groups)
	for _, g := range groups[:min(len(groups), maxGroups)] {
		view := groupView{Owner: text.Clip(g.Owner, site.MaxWordShown), Look: g.Display, N: g.Total,
			In: troubles(&g.Counts), Waits: g.Waiting, Open: len(groups) == 1}
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
