// Package pages answers those who look with a browser: one page a file, with its struct and its handler.
package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/stacktrace"
)

// Pages answers those who look with a browser.
type Pages struct {
	*site.Site
	Traces *backtraces.Store
	reader stacktrace.Reader
}

func New(s *site.Site, t *backtraces.Store, r stacktrace.Reader) *Pages { return &Pages{s, t, r} }
