package site

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
)

// SearchPage is a page with a search of its own. The search box is that of the header, on every page: there it searches
// the page instead of the list.
type SearchPage struct {
	Page
	Text     string // the query
	Problems []locks.QueryProblem
	Clear    string // the page without a search
}

// SearchPage fills the frame of a page that shows what a query finds, and that follows it. The name of the page is its
// path, its title, and its entry in the navigation.
func (s *Site) SearchPage(r *Request, name string, q *locks.Query) SearchPage {
	p := SearchPage{Page: s.Page(r, name), Text: BoxText(q.Text), Problems: q.Problems, Clear: s.URLs.To(name)}
	p.Here = name
	p.Follows = true
	p.Target = p.Clear
	p.What = name
	p.Query = p.Text
	if p.Clusters != nil {
		p.Clusters = s.Clusters(r, q, func(query string) string { return s.URLs.To(name, "q", query) })
	}
	return p
}
