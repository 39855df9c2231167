package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
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
		d.site.Config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("request failed")
		p = site.ErrInternal
	}
	var a site.Answer
	asJSON := d.wantsJSON(r)
	if asJSON {
		a.Type = "application/problem+json"
		a.Body, err = json.Marshal(p)
	} else {
		a, err = d.site.Render("problem", d.problemPage(d.site.RequestOf(r), p))
	}
	if err != nil {
		d.site.Config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("error page failed")
		a = site.Answer{Type: "text/plain; charset=utf-8", Body: []byte(p.Title + "\n")}
	}
	a.Status = p.Status
	a.Retry = p.Retry
	if (p.Code == "not_loaded" || p.Again) && !asJSON {
		a.Header = map[string]string{"Refresh": strconv.Itoa(int(p.Retry / time.Second))} // works without JavaScript
	}
	d.send(w, r, a)
}

// wantsJSON reports whether a program asked.
func (d *Dashboard) wantsJSON(r *http.Request) bool {
	return slices.ContainsFunc(d.servers(), func(c *server) bool {
		return strings.HasPrefix(r.URL.Path, d.route+c.path()+"api/")
	}) || strings.HasPrefix(r.URL.Path, d.route+"api/")
}

type problemPage struct {
	site.Page
	Problem   *site.Problem
	Endpoints []string // tried, when nothing was ever loaded
	Retry     int      // seconds
}

func (d *Dashboard) problemPage(r *site.Request, p *site.Problem) problemPage {
	view := problemPage{Page: d.site.Page(r, p.Title), Problem: p, Retry: int(p.Retry / time.Second)}
	view.Query = site.BoxText(p.Name)
	if p.Code == "not_loaded" {
		view.Endpoints = d.site.Config.Endpoints
	}
	return view
}
