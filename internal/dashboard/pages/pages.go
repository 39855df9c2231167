// Package pages answers people who use a browser. Each page is a file: its struct, which a template of package web
// shows, and its handler. Where a page has much to say, its parts have files of their own.
package pages

import (
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/locks"
)

// Pages are the pages of the dashboard.
type Pages struct {
	app    *app.App
	traces *etcdread.Backtraces
}

func New(s *app.App, t *etcdread.Backtraces) *Pages { return &Pages{s, t} }

func (p *Pages) ServeHelp(r *app.Request) (app.Answer, error) {
	v := p.app.Page(r, "help")
	v.NavEntry = "help"
	return p.app.Render("help", v)
}

// icon is the icon of the tab: that of the headline, and how many locks are in the same class.
func (v Headline) icon() app.Icon {
	n := 1
	for _, m := range v.Headline.More {
		if m.Same {
			n += m.N
		}
	}
	number := strconv.Itoa(n)
	if n > 9 {
		number = "9+"
	}
	switch v.Class {
	case locks.ClassStale:
		return app.Icon{State: "stale", Text: "?"}
	case locks.ClassUnlockers, locks.ClassDeadlock, locks.ClassUnclaimed:
		return app.Icon{State: locks.Alerting}
	case locks.ClassOverdue:
		return app.Icon{State: locks.Expired, Text: number}
	case locks.ClassDead:
		return app.Icon{State: locks.Abandoned, Text: number}
	case locks.ClassSilent, locks.ClassLate:
		return app.Icon{State: locks.Alerting, Text: number}
	case locks.ClassMalformed:
		return app.Icon{State: locks.Malformed, Text: number}
	}
	return app.Icon{State: locks.Held}
}

// Icon is the icon beside the headline.
func (v Headline) Icon() string {
	switch look := v.icon().State; v.Class {
	case locks.ClassUnlockers, locks.ClassDeadlock, locks.ClassUnclaimed:
		return "bad"
	case locks.ClassLeaving, locks.ClassOnTime:
		return "calm"
	default:
		return string(look)
	}
}

// iconShape is the drawing of an icon; # is where the text goes.
func iconShape(look string) (svg string, ok bool) {
	switch look {
	case string(locks.Alerting):
		svg = `<path d="M16 2 31 30H1z" fill="#B3261E"/><text x="16" y="27" fill="#FFF">#</text>`
	case string(locks.Expired):
		svg = `<rect x="2" y="2" width="28" height="28" rx="4" fill="#6A1B9A"/><text x="16" y="23" fill="#FFF">#</text>`
	case string(locks.Abandoned):
		svg = `<path d="M4 31V14a12 12 0 0 1 24 0V31z" fill="#37474F"/><text x="16" y="26" fill="#FFF">#</text>`
	case string(locks.Expiring):
		svg = `<path d="M16 1 31 16 16 31 1 16z" fill="#FFC447"/><text x="16" y="22" fill="#3A2600">#</text>`
	case string(locks.Malformed):
		svg = `<path d="M6 6 26 26M26 6 6 26" stroke="#7A8794" stroke-width="6" stroke-linecap="round"/>`
	case string(locks.Held):
		svg = `<path d="M6 17 13 24 27 8" fill="none" stroke="#7A8794" stroke-width="5" ` +
			`stroke-linecap="round" stroke-linejoin="round"/>`
	case "stale":
		svg = `<circle cx="16" cy="16" r="15" fill="#FFC447"/><text x="16" y="23" fill="#3A2600">?</text>`
	case "none":
		svg = `<circle cx="16" cy="16" r="11" fill="none" stroke="#7A8794" stroke-width="4"/>`
	}
	return svg, svg != ""
}

func (p *Pages) ServeIcon(r *app.Request) (app.Answer, error) {
	shape, ok := iconShape(r.URL.Query().Get("state"))
	n := r.URL.Query().Get("n")
	if !ok || len(n) > 2 || strings.Trim(n, "0123456789+?") != "" {
		return app.Answer{}, app.ErrNotFound
	}
	svg := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" ` +
		`font-family="system-ui,sans-serif" font-size="19" ` +
		`font-weight="700" text-anchor="middle">` + strings.Replace(shape, "#<", n+"<", 1) + `</svg>`
	return app.Answer{Type: "image/svg+xml", Body: []byte(svg),
		Header: map[string]string{"Cache-Control": "public, max-age=86400"}}, nil
}
