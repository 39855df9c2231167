// Package actions is what operators do to the holds of others: end them by force, ask their holders to finish, give
// them more time, say that they look at them, end the lock delay after them. It asks a person first, or takes a program
// at its word, and tells what came of it.
package actions

import (
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// Handler does what operators want, for people and for programs.
type Handler struct {
	operations []*Operation
	site       *site.Site
	traces     *backtraces.Store
	api        *api.API
	told       results     // notices
	notices    chan []byte // that wait to be sent
}

// New returns the handler of a site. Conflicts show programs the lock as the API does.
func New(s *site.Site, t *backtraces.Store, a *api.API) *Handler {
	h := &Handler{site: s, traces: t, api: a, told: newNotices(s.Config.Notify != nil),
		notices: make(chan []byte, maxNotices)}
	h.operations = newOperations(h)
	return h
}

// All are the operations.
func (h *Handler) All() []*Operation { return h.operations }

// Refused notes a request that was refused before its body was read.
func (o *Operation) Refused(r *site.Request, err error) {
	asked := Request{Hold: r.URL.Query().Get("hold")}
	asked.Name, _ = site.NameOf(r) // the API names it in the body
	o.record(r, asked, o.newAction(r, asked, ""), err)
}
