package dashboard

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
)

// searched is what a page shows of its search. The box is that of the header, on every page: it searches the page, or
// else the list.
type searched struct {
	Text     string // the query
	Problems []locks.QueryProblem
	Clear    string // the page without a search
	what     string
}

// searches is the search of a page, whose path is also what people call it.
func (d *Dashboard) searches(path string, q *locks.Query) searched {
	return searched{Text: boxText(q.Text), Problems: q.Problems, Clear: d.urls.To(path), what: path}
}

// searching is the page with its own search in the header.
func (s searched) searching(p page) page {
	p.Target = s.Clear
	p.What = s.what
	p.Query = s.Text
	return p
}
