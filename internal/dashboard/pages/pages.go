// Package pages answers people who use a browser. Each page is a file: its struct, which a template of package web
// shows, and its handler. Where a page has much to say, its parts have files of their own.
package pages

import (
	"cmp"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type Pages struct{ app *app.App }

func New(s *app.App) *Pages { return &Pages{s} }

func (p *Pages) ServeHelp(r *app.Request) (app.Answer, error) {
	v := p.app.Page(r, "help")
	v.NavEntry = "help"
	return p.app.Render("help", v)
}

// Icon returns the icon of the headline, on the page and in the tab.
func (v Headline) Icon() metadata.State {
	return cmp.Or(map[locks.Class]metadata.State{
		locks.ClassStale:     app.StaleIcon,
		locks.ClassUnlockers: "bad",
		locks.ClassDeadlock:  "bad",
		locks.ClassUnclaimed: "bad",
		locks.ClassOverdue:   metadata.StateExpired,
		locks.ClassDead:      metadata.StateAbandoned,
		locks.ClassSilent:    metadata.StateAlerting,
		locks.ClassLate:      metadata.StateAlerting,
		locks.ClassMalformed: metadata.StateMalformed,
	}[v.Class], "calm")
}

// iconShape returns the drawing of an icon of a tab; empty if there is none.
func iconShape(look metadata.State) string {
	const triangle = `<path d="M16 2 31 30H1z" fill="#B3261E"/>`
	const tick = `<path d="M6 17 13 24 27 8" fill="none" stroke="#7A8794" stroke-width="5" ` +
		`stroke-linecap="round" stroke-linejoin="round"/>`
	return map[metadata.State]string{
		metadata.StateAlerting:  triangle,
		"bad":                   triangle,
		"deadlock":              triangle,
		metadata.StateHeld:      tick,
		"calm":                  tick,
		metadata.StateExpired:   `<rect x="2" y="2" width="28" height="28" rx="4" fill="#6A1B9A"/>`,
		metadata.StateAbandoned: `<path d="M4 31V14a12 12 0 0 1 24 0V31z" fill="#37474F"/>`,
		metadata.StateExpiring:  `<path d="M16 1 31 16 16 31 1 16z" fill="#FFC447"/>`,
		metadata.StateMalformed: `<path d="M6 6 26 26M26 6 6 26" stroke="#7A8794" stroke-width="6"/>`,
		app.StaleIcon: `<circle cx="16" cy="16" r="15" fill="#FFC447"/><text x="16" y="23" fill="#3A2600" ` +
			`font-family="system-ui,sans-serif" font-size="19" font-weight="700" text-anchor="middle">?</text>`,
		app.NoIcon: `<circle cx="16" cy="16" r="11" fill="none" stroke="#7A8794" stroke-width="4"/>`,
	}[look]
}

func (p *Pages) ServeIcon(r *app.Request) (app.Answer, error) {
	shape := iconShape(metadata.State(r.URL.Query().Get("state")))
	if shape == "" {
		return app.Answer{}, app.ErrNotFound
	}
	svg := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">` + shape + `</svg>`
	return app.Answer{Type: "image/svg+xml", Body: []byte(svg),
		Header: map[string]string{"Cache-Control": "public, max-age=86400"}}, nil
}
