// Package site is what every answer of the dashboard is made with: the request as one value, the frame of a page,
// links, problems, templates, and one lock as it is found.
package site

import (
	"html/template"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Site is what every answer is made with. It lives as long as the dashboard; a [Request] lives as long as an answer.
type Site struct {
	Refusals  Refusals // as far as the log has them
	Config    setup.Config
	URLs      URLs
	Snapshots *locks.Snapshots
	History   *history.Store
	Trends    trends.Sampler
	Remember  *trends.Remote // asks for what the sampler did not see; nil: nobody knows
	Templates map[string]*template.Template
	slow      atomic.Bool // etcd answered last, but later than a page waits

	// Parts are the sites of several clusters, where this one shows all of them; nil where there is only one.
	Parts  []*Site
	merged merged
}

// Here narrows a query to the cluster of the site, where there are several.
func (s *Site) Here(query string) string {
	if s.URLs.Cluster == "" {
		return query
	}
	return strings.TrimSpace(query + " cluster:" + s.URLs.Cluster)
}

// Fresh is how current the view of the cluster is.
func (s *Site) Fresh() locks.Freshness { return locks.Freshness{Freshness: s.Config.View.Fresh()} }

// Unlockers returns the unlockers of the cluster that are alive. Of a site of several clusters ask [Request.Unlockers],
// which looks at what the caller may view.
func (s *Site) Unlockers() []protocol.Unlocker { return s.Config.View.Unlockers() }

// NotRead says that etcd could not be asked.
func (s *Site) NotRead(err error) error {
	return &Problem{Status: http.StatusServiceUnavailable, Code: "stale", Title: "etcd did not answer",
		Detail: "etcd could not be asked: " + s.Config.Explain(err) + ".",
		Retry:  history.RereadEvery}
}
