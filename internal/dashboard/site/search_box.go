package site

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
)

// SearchBox is what a page shows of its search. The box is that of the header, on every page: it searches the page, or
// else the list.
type SearchBox struct {
	Text     string // the query
	Problems []locks.QueryProblem
	Clear    string // the page without a search
	what     string
}

// Search is the search of a page, whose path is also what people call it.
func (d *Site) Search(path string, q *locks.Query) SearchBox {
	return SearchBox{Text: BoxText(q.Text), Problems: q.Problems, Clear: d.Urls.To(path), what: path}
}

// On is the page with its own search in the header.
func (s SearchBox) On(p Page) Page {
	p.Target = s.Clear
	p.What = s.what
	p.Query = s.Text
	return p
}
