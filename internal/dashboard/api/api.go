// Package api answers programs: what the pages show, as JSON.
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
	site  *site.Site
	pages *pages.Pages
}

// New returns the API to what the pages of a site show.
func New(s *site.Site, p *pages.Pages) *API { return &API{s, p} }

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
	// of several clusters, each as the members above tell of one
	Clusters []clusterMeta `json:"clusters,omitempty"`
}

// clusterMeta says how current the data of one of several clusters is.
type clusterMeta struct {
	Name     string      `json:"name"`
	Label    string      `json:"label"`
	Level    locks.Level `json:"level"` // live, stale, never
	AsOf     *string     `json:"as_of"`
	Revision string      `json:"revision"`
	Stale    bool        `json:"stale"`
	Unread   *string     `json:"unread"` // why a part of the answer that is read from etcd is missing
}

func newMeta(r *site.Request, asOf time.Time) meta {
	m := meta{AsOf: lockjson.Time(asOf), Revision: strconv.FormatInt(r.Fresh.Revision, 10),
		Stale: r.Level() == locks.Stale}
	for _, part := range r.Each() {
		if !r.Several() {
			break
		}
		c := part.Site.Config.Cluster
		level := part.Level()
		one := clusterMeta{Name: c.Name, Label: c.Shown(), Level: level, Stale: level == locks.Stale,
			Revision: strconv.FormatInt(part.Fresh.Revision, 10)}
		if level != locks.Never {
			one.AsOf = lockjson.Known(lockjson.Time(part.Viewpoint().AsOf))
		}
		m.Stale = m.Stale || one.Stale || level == locks.Never
		m.Clusters = append(m.Clusters, one)
	}
	return m
}

// notRead says of clusters why a part of the answer is missing.
func (m *meta) notRead(by map[string]string) {
	for i := range m.Clusters {
		m.Clusters[i].Unread = lockjson.Known(by[m.Clusters[i].Name])
	}
}

func (m meta) answer(data any) (site.Answer, error) {
	body, err := json.Marshal(envelope{data, m})
	return site.Answer{Type: "application/json", Body: append(body, '\n')}, err
}

// Answer is data about the present, as the API writes it.
func Answer(r *site.Request, data any) (site.Answer, error) { return newMeta(r, r.Now).answer(data) }

// Lock is the lock of a row.
func (a *API) Lock(r *locks.Row, now time.Time) lockjson.Lock {
	j := lockjson.New(r.Record, r.Verdict(), r.Queue, now)
	j.Expiring = r.Display == locks.Expiring // as the page shows it
	j.Cluster = r.Cluster
	j.URL = a.site.URLs.In(r.Cluster).Lock(r.Name, r.UUID)
	return j
}

type statusJSON struct {
	Level     locks.Level    `json:"level"` // live, stale, never
	Synced    bool           `json:"synced"`
	Cause     *string        `json:"cause"`
	HeardAt   *string        `json:"heard_at"`
	HeardIn   *float64       `json:"heard_at_in_seconds"`
	Revision  string         `json:"revision"`
	Version   *string        `json:"version"`
	Unlockers []unlockerJSON `json:"unlockers"`
	Members   []memberJSON   `json:"members"`
	Foreign   *int           `json:"foreign_keys"`
}

type memberJSON struct {
	Endpoint string  `json:"endpoint"`
	Role     *string `json:"role"` // leader, follower, learner
	Version  *string `json:"version"`
	Size     *int64  `json:"store_bytes"`
	Quota    *int64  `json:"quota_bytes"`
	Problem  *string `json:"problem"`
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
	Witness   *string  `json:"witness_trouble"`
}

// ServeStatus answers with the state of the dashboard, of etcd and of the unlockers.
func (a *API) ServeStatus(r *site.Request) (site.Answer, error) {
	now := r.Now
	fresh := r.Fresh
	j := statusJSON{Level: fresh.Level(now), Synced: fresh.Synced, Cause: lockjson.Known(fresh.Cause),
		Revision: strconv.FormatInt(fresh.Revision, 10), Version: lockjson.Known(a.site.Config.Version)}
	j.HeardAt, j.HeardIn = lockjson.Instant(fresh.Heard, now)
	unlockers := r.Unlockers()
	j.Unlockers = make([]unlockerJSON, 0, len(unlockers))
	for _, u := range unlockers {
		v := unlockerJSON{ID: u.ID, Hostname: lockjson.Known(u.Hostname), Version: lockjson.Known(u.Version),
			Mode:     lockjson.Known(u.Mode),
			HeldBack: append([]string{}, u.HeldBack...), GapCause: lockjson.Known(u.LastGapCause),
			Witness: lockjson.Known(u.WitnessTrouble)}
		v.StartedAt, v.StartedIn = lockjson.Instant(u.StartedAt.Time, now)
		v.ArrivedAt, v.ArrivedIn = lockjson.Instant(u.Arrived, now)
		v.LastGapAt, v.LastGapIn = lockjson.Instant(u.LastGap.Time, now)
		j.Unlockers = append(j.Unlockers, v)
	}
	for _, m := range a.site.Config.Members() {
		j.Members = append(j.Members, memberJSON{m.Endpoint, lockjson.Known(m.Role), lockjson.Known(m.Version),
			lockjson.Known(m.Size), lockjson.Known(m.Quota), lockjson.Known(m.Problem)})
	}
	if !r.Several() {
		_, total := a.site.Config.View.Foreign()
		j.Foreign = &total
	}
	return Answer(r, j)
}
