package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// fail answers a request with an error. It is the only place where errors become answers.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *site.Problem
	switch {
	case errors.Is(err, locks.ErrTooSlow):
		p = site.ErrTooSlowSearch
	case errors.Is(err, locks.ErrLeft):
		p = site.ErrReaderLeft
	case !errors.As(err, &p):
		d.Config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("request failed")
		p = site.ErrInternal
	}
	a := site.Answer{Status: p.Status, Retry: p.Retry}
	if (p.Code == "not_loaded" || p.Again) && !d.wantsJSON(r) {
		a.Header = map[string]string{"Refresh": strconv.Itoa(int(p.Retry / time.Second))} // works without JavaScript
	}
	if d.wantsJSON(r) {
		a.Type = "application/problem+json"
		a.Body, err = json.Marshal(p)
	} else {
		a.Type = site.TypeHTML
		a.Body, err = d.Render("problem", d.problemPage(d.RequestOf(r), p))
	}
	if err != nil {
		d.Config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("error page failed")
		a.Type = "text/plain; charset=utf-8"
		a.Body = []byte(p.Title + "\n")
	}
	d.send(w, r, a)
}

// wantsJSON reports whether a program asked.
func (d *Dashboard) wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, d.route+"api/")
}

type problemPage struct {
	site.Page
	Problem   *site.Problem
	Endpoints []string // tried, when nothing was ever loaded
	Retry     int      // seconds
}

func (d *Dashboard) problemPage(r *site.Request, p *site.Problem) problemPage {
	view := problemPage{Page: d.Page(r, p.Title), Problem: p, Retry: int(p.Retry / time.Second)}
	view.Query = site.BoxText(p.Name)
	if p.Code == "not_loaded" {
		view.Endpoints = d.Config.Endpoints
	}
	return view
}
