// Package unlock ends holds by force: it asks a person first, or takes a program at its word, and tells what came of
// it.
package unlock

import (
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// Handler ends holds by force, for people and for programs.
type Handler struct {
	*pages.Pages
	api     *api.API
	metrics *metrics
	rate    rate
	notices chan []byte // that wait to be sent
}

func New(p *pages.Pages, a *api.API) *Handler {
	return &Handler{Pages: p, api: a, metrics: newMetrics(p.Config.Notify != nil),
		notices: make(chan []byte, maxNotices)}
}

// Refused notes a request for a force unlock that was refused before its body was read.
func (d *Handler) Refused(r *site.Request, err error) {
	asked := Request{Hold: r.URL.Query().Get("hold")}
	asked.Name, _ = site.NameOf(r) // the API names it in the body
	d.record(r, asked, newAction(r, asked, ""), err)
}
