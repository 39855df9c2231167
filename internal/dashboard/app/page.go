package app

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Page is what every page shows around its content.
type Page struct {
	Viewpoint
	Title         string // of the tab
	Environment   string
	Band          string // class that colours the environment
	Version       string
	NavEntry      string // which entry of the navigation this is
	Query         string // text in the search box
	SearchURL     string // where the search goes
	SearchSubject string // what it searches, in a word
	Fresh         freshView
	At            time.Time
	Now           int64          // the same in milliseconds, by which the browser's clock is corrected
	Icon          metadata.State // of the tab while the page is not stale
	JSON          string         // the page as JSON
	Banner        RichText
	AutoRefresh   bool    // app.js keeps the page current
	MinRefresh    float64 // of the page, in seconds
	Caller        string
	Origin        string // by which the caller reached the page
	Address       string // of the page, for its print
	CanView       bool   // the caller may view locks
	CanAudit      bool   // the caller may see the audit trail
}

// maxAddress is how much of its address a print has, in bytes.
const maxAddress = 300

type freshView struct {
	Level    locks.Level
	Heard    *TimeText
	At       *TimeText // time of day of the last sign of life
	Revision int64
}

// Curl returns the command that gets the page as JSON. Callers add their own credentials.
func (p Page) Curl() string {
	if p.JSON == "" {
		return ""
	}
	return "curl -s " + text.ShellOperand(p.Origin+p.JSON)
}

// Page fills the frame for a page with this title.
func (s *App) Page(r *Request, title string) Page {
	now := r.Now
	c := r.Caller
	fresh := r.Fresh
	level := r.Level()
	if !c.May(access.View) { // who may not look is not told how etcd does either
		fresh = locks.Freshness{}
		level = locks.Never
	}
	parts := slices.DeleteFunc([]string{title, "mutexdash", s.Config.Environment},
		func(part string) bool { return part == "" })
	p := Page{
		Viewpoint:     viewpoint(fresh, now),
		MinRefresh:    s.Config.MinRefresh.Seconds(),
		Caller:        c.Name,
		Origin:        c.Origin,
		Address:       text.Clip(c.Origin+s.URLs.self(r), maxAddress),
		CanView:       c.May(access.View),
		CanAudit:      c.May(access.Audit),
		Title:         text.Visible(strings.Join(parts, " – ")),
		SearchURL:     s.URLs.To(""),
		SearchSubject: "locks",
		Environment:   s.Config.Environment,
		Band:          band(s.Config.Environment),
		Version:       s.Config.Version,
		At:            now,
		Now:           now.UnixMilli(),
		Fresh:         freshView{Level: level, Revision: fresh.Revision},
		Icon:          NoIcon,
	}
	if level != locks.Never {
		p.Fresh.Heard = p.Age(fresh.HeardAt)
		p.Fresh.At = Clock(fresh.HeardAt)
	}
	if level == locks.Stale {
		p.Banner = Plain("etcd has not answered since ").Time(p.Fresh.At).Plain(" (").Time(p.Fresh.Heard).
			Plain(")" + fresh.Why() + ". This page may be out of date.")
	}
	return p
}

// band chooses the colour of an environment: production always the same one, the others by their name.
func band(environment string) string {
	switch {
	case environment == "":
		return ""
	case strings.Contains(strings.ToLower(environment), "prod"):
		return "band-prod"
	}
	return "band-" + strconv.FormatUint(xxhash.Sum64String(strings.ToLower(environment))>>16%5, 10)
}

// Icons of the tab that are not those of a state.
const (
	StaleIcon = "stale"
	NoIcon    = "none"
)

// SearchPage is a page with a search of its own. The search box is that of the header, on every page: there it searches
// the page instead of the list.
type SearchPage struct {
	Page
	Text     string // the query
	Problems []locks.QueryProblem
	Clear    string // the page without a search
}

// SearchPage fills the frame of a page that shows what a query finds, and that follows it. The name of the page is its
// path, its title, and its entry in the navigation.
func (s *App) SearchPage(r *Request, name string, q *locks.Query) SearchPage {
	p := SearchPage{Page: s.Page(r, name), Text: BoxText(q.Text), Problems: q.Problems, Clear: s.URLs.To(name)}
	p.NavEntry = name
	p.AutoRefresh = true
	p.SearchURL = p.Clear
	p.SearchSubject = name
	p.Query = p.Text
	return p
}
