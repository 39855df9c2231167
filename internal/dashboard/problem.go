package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
)

// problem is an answer that is not what was asked for. It is the only error that says something to the user; any other
// error is logged and answered with a problem that says nothing.
type problem struct {
	Status   int    // of HTTP
	Code     string // stable word for programs
	Title    string // short, for people
	Detail   string // sentences for people; may quote hostile text
	Retry    time.Duration
	Again    bool   // the page asks again by itself then
	Name     string // the lock that was asked for, where there is one
	Link     string // to what explains it
	LinkText string
	Command  string    // that does what was refused, from where it is possible
	Lock     *lockJSON // as it is now, for programs
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// MarshalJSON writes the problem as RFC 9457 wants it.
func (p *problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type   string    `json:"type"`
		Title  string    `json:"title"`
		Status int       `json:"status"`
		Detail string    `json:"detail,omitempty"`
		Code   string    `json:"code"`
		Lock   *lockJSON `json:"lock,omitempty"`
	}{"about:blank", p.Title, p.Status, p.Detail, p.Code, p.Lock})
}

// Problems without details.
var (
	errNotFound = &problem{Status: http.StatusNotFound, Code: "not_found", Title: "No such page",
		Detail: "There is nothing at this address."}
	errMethod = &problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Title: "Not possible here",
		Detail: "This address does not take such requests."}
	errCrossOrigin = &problem{Status: http.StatusForbidden, Code: "cross_origin", Title: "Refused",
		Detail: "The request came from another site."}
	errInternal = &problem{Status: http.StatusInternalServerError, Code: "internal", Title: "Something broke",
		Detail: "The dashboard made a mistake. Its log says more."}
	errTooSlowSearch = &problem{Status: http.StatusServiceUnavailable, Code: "too_slow",
		Title: "The search took too long", Retry: time.Second,
		Detail: "It was stopped after 2 s. Make the regular expression simpler, or search for a part of the name."}
	errReaderLeft = &problem{Status: http.StatusServiceUnavailable, Code: "left", Title: "Stopped",
		Detail: "The reader left before the search was done."}
	errBusy = &problem{Status: http.StatusServiceUnavailable, Code: "busy", Title: "Too many requests at once",
		Detail: "Try again in a moment.", Retry: time.Second}
)

// badQuery refuses the parameters of a request; the sentence needs no full stop.
func badQuery(text string) error {
	return &problem{Status: http.StatusBadRequest, Code: "bad_query", Title: "Bad query", Detail: text + "."}
}

// fail answers a request with an error. It is the only place where errors become answers.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *problem
	switch {
	case errors.Is(err, locks.ErrTooSlow):
		p = errTooSlowSearch
	case errors.Is(err, locks.ErrLeft):
		p = errReaderLeft
	case !errors.As(err, &p):
		d.config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("request failed")
		p = errInternal
	}
	a := answer{Status: p.Status, Retry: p.Retry}
	if (p.Code == "not_loaded" || p.Again) && !d.wantsJSON(r) {
		a.Header = map[string]string{"Refresh": strconv.Itoa(int(p.Retry / time.Second))} // works without JavaScript
	}
	if d.wantsJSON(r) {
		a.Type = "application/problem+json"
		a.Body, err = json.Marshal(p)
	} else {
		a.Type = typeHTML
		a.Body, err = d.render("problem", d.problemPage(d.requestOf(r), p))
	}
	if err != nil {
		d.config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("error page failed")
		a.Type = "text/plain; charset=utf-8"
		a.Body = []byte(p.Title + "\n")
	}
	d.send(w, r, a)
}

// wantsJSON tells whether a program asked.
func (d *Dashboard) wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, d.route+"api/")
}

type problemPage struct {
	page
	Problem   *problem
	Endpoints []string // tried, when nothing was ever loaded
	Retry     int      // seconds
}

func (d *Dashboard) problemPage(r *request, p *problem) problemPage {
	view := problemPage{page: d.page(r, p.Title), Problem: p, Retry: int(p.Retry / time.Second)}
	view.Query = boxText(p.Name)
	if p.Code == "not_loaded" {
		view.Endpoints = d.config.Endpoints
	}
	return view
}
