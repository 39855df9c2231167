package dashboard

import (
	"context"
	"net/http"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
)

type callerKey struct{}

// callerOf is who sent the request; nobody, who may nothing, where identify was not asked yet.
func callerOf(r *http.Request) access.Caller {
	c, _ := r.Context().Value(callerKey{}).(access.Caller)
	return c
}

// identify finds out who asks. What the caller may do is for the handlers to check.
func (d *Dashboard) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := d.config.Access.Identify(r)
		c.Origin = d.urls.originFor(r)
		if d.config.HideBacktraces {
			c = c.Without(access.Backtrace)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}
