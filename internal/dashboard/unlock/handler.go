// Package unlock ends holds by force: it asks a person first, or takes a program at its word, and tells what came of
// it.
package unlock

import (
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// Handler ends holds by force, for people and for programs.
type Handler struct {
	site    *site.Site
	traces  *backtraces.Store
	api     *api.API
	metrics *metrics
	rate    rate
	notices chan []byte // that wait to be sent
}

// New returns the handler of a site. Conflicts show programs the lock as the API does.
func New(s *site.Site, t *backtraces.Store, a *api.API) *Handler {
	return &Handler{site: s, traces: t, api: a, metrics: newMetrics(s.Config.Notify != nil),
		notices: make(chan []byte, maxNotices)}
}

// Refused notes a request for a force unlock that was refused before its body was read.
func (h *Handler) Refused(r *site.Request, err error) {
	asked := Request{Hold: r.URL.Query().Get("hold")}
	asked.Name, _ = site.NameOf(r) // the API names it in the body
	h.record(r, asked, newAction(r, asked, ""), err)
}
