package dashboard

import (
	"net/http"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
)

// door finds out who asks, and makes the request. What the caller may do is for the handlers to check.
func (d *Dashboard) door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := d.site.Config.Access.Identify(r)
		c.Origin = d.site.URLs.OriginFor(r)
		if d.site.Config.HideBacktraces {
			c = c.Without(access.Backtrace)
		}
		made := d.site.NewRequest(r, c)
		next.ServeHTTP(w, made.Request)
	})
}
