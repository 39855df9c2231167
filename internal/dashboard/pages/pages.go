// Package pages answers people who use a browser. Each page is a file: its struct, which a template of package web
// shows, and its handler. Where a page has much to say, its parts have files of their own.
package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/backtraces"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// Pages are the pages of the dashboard.
type Pages struct {
	site   *site.Site
	traces *backtraces.Store
}

// New returns the pages of a site.
func New(s *site.Site, t *backtraces.Store) *Pages { return &Pages{s, t} }
