package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// clustersPage is the state of several clusters, each of which has a status page of its own.
type clustersPage struct {
	site.Page
	Each     []clusterStatus
	About    []fact
	Settings []setup.Setting
}

type clusterStatus struct {
	Name, Label, URL string
	Level            locks.Level
	Heard            *phrase.Moment
	Cause, Prefix    string
	Total            int
	Unlockers        int
}

func (p *Pages) serveClusters(r *site.Request) (site.Answer, error) {
	v := clustersPage{Page: p.site.Page(r, "status"), About: p.about(r), Settings: p.settings(r.Caller)}
	v.Here = "status"
	v.Follows = true
	v.JSON = p.site.URLs.To("api/v1/status")
	for _, part := range r.Each() {
		c := part.Site.Config.Cluster
		s := clusterStatus{Name: c.Name, Label: c.Shown(), URL: part.Site.URLs.Own("status"), Level: part.Level(),
			Heard: v.Age(part.Fresh.Heard), Cause: part.Fresh.Cause, Prefix: part.Site.Config.Layout.Prefix()}
		if snapshot, err := part.Loaded(); err == nil {
			s.Total = snapshot.All.Total
		}
		s.Unlockers = len(part.Site.Unlockers())
		v.Each = append(v.Each, s)
	}
	return p.site.Render("clusters", v)
}
