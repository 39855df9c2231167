package dashboard

import (
	"github.com/cespare/xxhash/v2"

	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
)

// page is what every page shows around its content.
type page struct {
	phrase.Viewpoint
	Title       string // of the tab
	Brand       string
	Environment string
	Band        string // class that colours the environment
	Version     string
	Here        string // which entry of the navigation this is
	Query       string // text in the search box
	Target      string // where the search goes
	What        string // it searches
	Fresh       freshView
	At          time.Time
	Now         int64 // the same in milliseconds, by which the browser's clock is corrected
	Icon        icon
	JSON        string // the page as JSON
	CSV         string // and as a table for other programs
	Banner      phrase.Sentence
	Follows     bool    // the page goes on with the locks by itself
	Least       float64 // seconds between two looks of the page at least
	Caller      string
	Origin      string // by which the caller reached the page
	Inside      bool   // the caller may view locks
	Audits      bool   // the caller may see the audit trail
}

// freshView is how current the page is.
type freshView struct {
	Level    locks.Level
	Heard    *phrase.Moment
	At       string // time of day of the last sign of life
	Revision int64
	Cause    string
}

// Curl is the command that gets the page as JSON; what a caller needs to be known by is for the caller to add.
func (p page) Curl() string {
	if p.JSON == "" {
		return ""
	}
	return "curl -s " + shell(p.Origin+p.JSON)
}

// page fills the frame for a page with this title.
func (d *Dashboard) page(r *request, title string) page {
	now := r.now
	c := r.caller
	fresh := r.fresh
	level := r.level()
	if !c.May(access.View) { // who may not look is not told how etcd does either
		fresh = locks.Freshness{}
		level = locks.Never
	}
	p := page{
		Viewpoint:   fresh.Viewpoint(now),
		Least:       d.config.MinRefresh.Seconds(),
		Caller:      c.Name,
		Origin:      c.Origin,
		Inside:      c.May(access.View),
		Audits:      c.May(access.Audit),
		Title:       joinTitle(title, d.config.Title, d.config.Environment),
		Brand:       d.config.Title,
		Target:      d.urls.To(""),
		What:        "locks",
		Environment: d.config.Environment,
		Band:        band(d.config.Environment),
		Version:     d.config.Version,
		At:          now,
		Now:         now.UnixMilli(),
		Fresh:       freshView{Level: level, Revision: fresh.Revision, Cause: fresh.Cause},
		Icon:        icon{Look: "none"},
	}
	if level != locks.Never {
		p.Fresh.Heard, p.Fresh.At = p.Age(fresh.Heard), phrase.TimeOfDay(fresh.Heard)
	}
	if level == locks.Stale {
		p.Icon = icon{Look: "stale", Text: "?"}
		p.Banner = phrase.Say("etcd unreachable since " + p.Fresh.At + " UTC (").Time(p.Fresh.Heard).
			Say(")" + fresh.Why() + ". Showing the last known state; locks may have changed.")
	}
	return p
}

func joinTitle(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, text.Visible(p))
		}
	}
	return strings.Join(kept, " – ")
}

// band chooses the colour of an environment: production always the same one, the others by their name.
func band(environment string) string {
	switch name := strings.ToLower(environment); {
	case name == "":
		return ""
	case strings.Contains(name, "prod"):
		return "band-prod"
	default:
		return "band-" + strconv.Itoa(int(xxhash.Sum64String(name)>>16%5))
	}
}

// icon is the picture in the tab: the worst state and how many locks are in it.
type icon struct {
	Look locks.DisplayState // or "stale" or "none"
	Text string
}

// iconOf is the icon of a picture of the locks.
func iconOf(c locks.Counts) icon {
	number := func(n int) string {
		if n > 9 {
			return "9+"
		}
		return strconv.Itoa(n)
	}
	switch {
	case c.Expired > 0:
		return icon{locks.Expired, number(c.Expired)}
	case c.Alerting > 0:
		return icon{locks.Alerting, number(c.Alerting)}
	case c.Expiring > 0:
		return icon{locks.Expiring, number(c.Expiring)}
	case c.Malformed > 0:
		return icon{locks.Malformed, number(c.Malformed)}
	}
	return icon{Look: locks.Held}
}

// iconShape is the drawing of an icon; # is where the text goes.
func iconShape(look string) (svg string, ok bool) {
	switch look {
	case string(locks.Alerting):
		svg = `<path d="M16 2 31 30H1z" fill="#B3261E"/><text x="16" y="27" fill="#FFF">#</text>`
	case string(locks.Expired):
		svg = `<rect x="2" y="2" width="28" height="28" rx="4" fill="#6A1B9A"/><text x="16" y="23" fill="#FFF">#</text>`
	case string(locks.Expiring):
		svg = `<path d="M16 1 31 16 16 31 1 16z" fill="#FFC447"/><text x="16" y="22" fill="#3A2600">#</text>`
	case string(locks.Malformed):
		svg = `<path d="M6 6 26 26M26 6 6 26" stroke="#7A8794" stroke-width="6" stroke-linecap="round"/>`
	case string(locks.Held):
		svg = `<path d="M6 17 13 24 27 8" fill="none" stroke="#7A8794" stroke-width="5" stroke-linecap="round" stroke-linejoin="round"/>`
	case "stale":
		svg = `<circle cx="16" cy="16" r="15" fill="#FFC447"/><text x="16" y="23" fill="#3A2600">?</text>`
	case "none":
		svg = `<circle cx="16" cy="16" r="11" fill="none" stroke="#7A8794" stroke-width="4"/>`
	}
	return svg, svg != ""
}

func (d *Dashboard) icon(r *request) (answer, error) {
	shape, ok := iconShape(r.URL.Query().Get("look"))
	n := r.URL.Query().Get("n")
	if !ok || len(n) > 2 || strings.Trim(n, "0123456789+?") != "" {
		return answer{}, errNotFound
	}
	svg := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" font-family="system-ui,sans-serif" font-size="19" ` +
		`font-weight="700" text-anchor="middle">` + strings.Replace(shape, "#<", n+"<", 1) + `</svg>`
	return answer{Type: "image/svg+xml", Body: []byte(svg),
		Header: map[string]string{"Cache-Control": "public, max-age=86400"}}, nil
}
