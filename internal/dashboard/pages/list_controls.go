package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// fillControls fills in the filters and the links that sort.
func (p *Pages) fillControls(v *listPage, s *locks.Snapshot, l ListRequest, found locks.Counts,
	free []diagnosis.Unclaimed) {
	if len(l.Query.Terms) > 0 {
		v.Text = v.Query
		for _, lock := range free { // whose waiters are among those of all locks
			waiting := locks.SummarizeWaiters(s.Queues[lock.Name], v.AsOf)
			found.Waiting += waiting.Waiters
			found.Longest = protocol.Earlier(found.Longest, waiting.Longest)
		}
	}
	if name := l.Query.Text; len(name) > locks.MaxQueryBytes {
		v.Jump = nil
	} else if row := s.Find(name); row != nil {
		v.Jump = &Link{row.Name, p.app.URLs.Lock(row.Name, row.UUID)}
	} else if len(s.Shares(name)) > 0 {
		v.Jump = &Link{name, p.app.URLs.Lock(name, "")}
	}
	v.Group = Link{"group by owner", l.link(p.app.URLs, func(l *ListRequest) { l.group = true })}
	if l.group {
		v.Group = Link{"one list", l.link(p.app.URLs, func(l *ListRequest) { l.group = false })}
	}
	v.Waiting = app.Plain(text.Thousands(found.Waiting) + " waiting")
	if longest := v.Elapsed(found.Longest); longest != nil {
		v.Waiting = v.Waiting.Plain(" (longest ").Time(longest).Plain(")")
	}
}

// forceUnlockLink leads to the form that ends the n holds found by a search; empty if the caller may not.
func (p *Pages) forceUnlockLink(r *app.Request, q *locks.Query, n int) Link {
	may := p.app.Config.IsEnabled(protocol.VerbForceUnlock) && r.Caller.MaySome(access.Unlock)
	if !may || r.Level() != locks.Live || n < 2 || len(q.Terms) == 0 || q.Err() != nil {
		return Link{}
	}
	return Link{"force unlock these " + text.Thousands(n) + "…", p.app.URLs.To("unlock", "q", q.Text)}
}

// groupView is a section of a list: an owner and the locks of it.
type groupView struct {
	Owner string
	State metadata.State
	N     int
	In    []stateCount // of its locks that need a person
	Waits int
	Open  bool // it is the only one
	URL   string
	Rest  int // locks that are not shown here
	Table lockTable
}

type stateCount struct {
	State metadata.State
	N     int
}

const maxGroups = 200

// groupViews returns the sections of a list. As many rows are shown as on a page without sections.
func (p *Pages) groupViews(v *listPage, r *app.Request, l ListRequest, found *locks.Result) {
	groups := found.ByOwner()
	left := l.Limit
	v.Owners = len(groups)
	for _, g := range groups[:min(len(groups), maxGroups)] {
		view := groupView{Owner: text.Clip(g.Owner, app.MaxWordShown), State: g.State, N: g.Total,
			Waits: g.Waiting, Open: len(groups) == 1}
		for _, s := range staleness.States()[1:] { // but held
			view.In = append(view.In, stateCount{s, g.In(s)})
		}
		if g.Owner != "" {
			view.URL = l.link(p.app.URLs, func(l *ListRequest) {
				l.Query.Text = l.Query.With(locks.Exactly("owner", g.Owner))
				l.group = false
			})
		}
		rows := g.Rows[:min(len(g.Rows), left)]
		left -= len(rows)
		view.Rest = g.Total - len(rows)
		view.Table = p.newTable(r, rows, l, found.Class)
		view.Table.Caption = "Locks of " + text.Visible(view.Owner)
		v.Groups = append(v.Groups, view)
	}
}
