// Package api answers programs: what the pages show, as JSON.
package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
)

// API is the JSON API, version 1. It only grows. Its conventions are those of [lockjson].
type API struct {
	app   *app.App
	pages *pages.Pages
}

func New(s *app.App, p *pages.Pages) *API { return &API{s, p} }

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

func newMeta(r *app.Request, asOf time.Time) meta {
	return meta{AsOf: lockjson.Time(asOf), Revision: strconv.FormatInt(r.Fresh.Revision, 10),
		Stale: r.Level() == locks.Stale}
}

func (m meta) answer(data any) (app.Answer, error) {
	body, err := json.Marshal(envelope{data, m})
	return app.Answer{Type: "application/json", Body: append(body, '\n')}, err
}

// Answer is data about the present, as the API writes it.
func Answer(r *app.Request, data any) (app.Answer, error) { return newMeta(r, r.Now).answer(data) }

func (a *API) Lock(r *locks.Row, now time.Time) lockjson.Lock {
	j := lockjson.New(r, now)
	j.URL = a.app.URLs.Lock(r.Name, r.UUID)
	return j
}

type statusJSON struct {
	Level        locks.Level       `json:"level"` // live, stale, never
	Synced       bool              `json:"synced"`
	Cause        *string           `json:"cause"`
	HeardAt      *string           `json:"heard_at"`
	HeardIn      *float64          `json:"heard_at_in_seconds"`
	Revision     string            `json:"revision"`
	Version      *string           `json:"version"`
	Unlockers    []unlockerJSON    `json:"unlockers"`
	Members      []memberJSON      `json:"members"`
	Certificates []certificateJSON `json:"certificates"`
	Foreign      int               `json:"foreign_keys"`
}

type memberJSON struct {
	Endpoint string  `json:"endpoint"`
	Role     *string `json:"role"` // leader, follower, learner
	Version  *string `json:"version"`
	Size     *int64  `json:"store_bytes"`
	Quota    *int64  `json:"quota_bytes"`
	Problem  *string `json:"problem"`
}

type certificateJSON struct {
	Name      string   `json:"name"`
	ExpiresAt *string  `json:"expires_at"`
	ExpiresIn *float64 `json:"expires_at_in_seconds"`
	IsDue     bool     `json:"renewal_due"`
}

type unlockerJSON struct {
	ID        string   `json:"id"`
	Hostname  *string  `json:"hostname"`
	Version   *string  `json:"version"`
	Mode      *string  `json:"mode"`
	StartedAt *string  `json:"started_at"`
	StartedIn *float64 `json:"started_at_in_seconds"`
	ArrivedAt *string  `json:"arrived_at"`
	ArrivedIn *float64 `json:"arrived_at_in_seconds"`
	HeldBack  []string `json:"held_back"`
	LastGapAt *string  `json:"last_gap_at"`
	LastGapIn *float64 `json:"last_gap_at_in_seconds"`
	GapCause  *string  `json:"last_gap_cause"`
	Witness   *string  `json:"witness_problem"`
}

func (a *API) ServeStatus(r *app.Request) (app.Answer, error) {
	now := r.Now
	fresh := r.Fresh
	j := statusJSON{Level: fresh.Level(now), Synced: fresh.Synced, Cause: lockjson.OrNull(fresh.Cause),
		Revision: strconv.FormatInt(fresh.Revision, 10), Version: lockjson.OrNull(a.app.Config.Version)}
	j.HeardAt, j.HeardIn = lockjson.Instant(fresh.HeardAt, now)
	unlockers := a.app.Config.View.Unlockers()
	j.Unlockers = make([]unlockerJSON, 0, len(unlockers))
	for _, u := range unlockers {
		v := unlockerJSON{ID: u.ID, Hostname: lockjson.OrNull(u.Hostname), Version: lockjson.OrNull(u.Version),
			Mode:     lockjson.OrNull(u.Mode),
			HeldBack: append([]string{}, u.HeldBack...), GapCause: lockjson.OrNull(u.LastGapCause),
			Witness: lockjson.OrNull(u.WitnessProblem)}
		v.StartedAt, v.StartedIn = lockjson.Instant(u.StartedAt.Time, now)
		v.ArrivedAt, v.ArrivedIn = lockjson.Instant(u.ArrivedAt, now)
		v.LastGapAt, v.LastGapIn = lockjson.Instant(u.LastGap.Time, now)
		j.Unlockers = append(j.Unlockers, v)
	}
	for _, m := range a.app.Config.Members() {
		j.Members = append(j.Members, memberJSON{m.Endpoint, lockjson.OrNull(m.Role), lockjson.OrNull(m.Version),
			lockjson.OrNull(m.Size), lockjson.OrNull(m.Quota), lockjson.OrNull(m.Problem)})
	}
	j.Certificates = []certificateJSON{}
	for _, c := range a.app.Config.Certificates() {
		at, in := lockjson.Instant(c.ExpiresAt, now)
		j.Certificates = append(j.Certificates, certificateJSON{c.Name, at, in, c.IsDue})
	}
	_, j.Foreign, _ = a.app.Config.View.Foreign()
	return Answer(r, j)
}
