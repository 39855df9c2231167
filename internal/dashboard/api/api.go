// Package api answers programs: what the pages show, as JSON and as a table.
package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/lockjson"
)

// API is the JSON API, version 1. It only grows. Its conventions are those of [lockjson].
type API struct {
	*pages.Pages
}

// New returns the API to what the pages show.
func New(p *pages.Pages) *API { return &API{p} }

// envelope is every answer that is not a problem.
type envelope struct {
	Data any  `json:"data"`
	Meta meta `json:"meta"`
}

type meta struct {
	AsOf     string  `json:"as_of"`
	Revision string  `json:"revision"`
	Stale    bool    `json:"stale"`
	Total    *int    `json:"total,omitempty"`
	Matched  *int    `json:"matched,omitempty"`
	Next     *string `json:"next,omitempty"`               // cursor of the next page
	NextAt   *string `json:"next_transition_at,omitempty"` // when a state changes by itself
}

// Lock is the lock of a row.
func (d *API) Lock(r *locks.Row, now time.Time) lockjson.Lock {
	var queue *lockjson.Queue
	if d.Config.Queues != nil {
		queue = &lockjson.Queue{Waiters: r.Waiters, Longest: r.Longest}
	}
	j := lockjson.New(r.Record, r.Verdict, queue, now)
	j.Expiring = r.Display == locks.Expiring // as the page shows it
	j.URL = d.Urls.Lock(r.Name, r.UUID)
	return j
}

func newMeta(r *site.Request, asOf time.Time) meta {
	return meta{AsOf: lockjson.Time(asOf), Revision: strconv.FormatInt(r.Fresh.Revision, 10),
		Stale: r.Level() == locks.Stale}
}

// Answer is an answer of the API about a request.
func (d *API) Answer(r *site.Request, data any) (site.Answer, error) {
	return jsonAnswer(data, newMeta(r, r.Now), "")
}

func jsonAnswer(data any, m meta, etag string) (site.Answer, error) {
	body, err := json.Marshal(envelope{data, m})
	return site.Answer{Type: "application/json", Body: append(body, '\n'), ETag: etag}, err
}
