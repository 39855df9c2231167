package pages

import (
	"net/http"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// whichPage offers the clusters in which a lock can be looked for.
type whichPage struct {
	site.Page
	Name    string
	Choices []whichChoice
	Known   int  // clusters that know the name
	Silent  bool // there is a cluster of which nothing is known
}

type whichChoice struct {
	Cluster, URL string
	Look         locks.DisplayState // of the lock there; empty: nobody holds it
	Waiters      int
	Unknown      bool   // what is there
	Problem      string // of the cluster
}

// ServeWhich leads to the lock in the only cluster that knows it, or offers the clusters. path is the page of the lock
// below that of a cluster.
func (p *Pages) ServeWhich(r *site.Request, path string) (site.Answer, error) {
	name, err := site.NameOf(r)
	if err != nil {
		return site.Answer{}, err
	}
	if _, err := r.Loaded(); err != nil {
		return site.Answer{}, err
	}
	asked := "?" + r.URL.RawQuery
	if part, ok := r.WhichCluster(name, r.URL.Query().Get("hold")); ok {
		return site.Redirect(part.Site.URLs.Own(path) + asked), nil
	}
	v := whichPage{Page: p.site.Page(r, name), Name: name}
	v.Here = "list"
	for _, part := range r.Each() {
		c := whichChoice{Cluster: part.Site.Config.Cluster.Shown(), URL: part.Site.URLs.Own(path) + asked}
		s, err := part.Loaded()
		if err != nil {
			c.Problem = "no data"
			c.Unknown, v.Silent = true, true
			v.Choices = append(v.Choices, c)
			continue
		}
		if holders := s.Holders(name); len(holders) > 0 {
			c.Look = locks.UseOf(holders).Display
		}
		c.Waiters = len(s.Queues[name])
		if c.Look != "" || c.Waiters > 0 {
			v.Known++
		}
		if part.Viewpoint().Stale {
			c.Problem = "as of " + part.Viewpoint().AsOf.UTC().Format("15:04:05") + " UTC"
		}
		v.Choices = append(v.Choices, c)
	}
	a, err := p.site.Render("which", v)
	if v.Known == 0 {
		a.Status = http.StatusNotFound
	} else {
		a.Status = http.StatusMultipleChoices
	}
	return a, err
}
