package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The JSON API, version 1. It only grows. Names are in snake case; times come as RFC 3339 and, for callers whose clock is wrong,
// as seconds relative to as_of; revisions are strings, because they outgrow the numbers of JavaScript; what is not known is
// null, never 0 or "".

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

// lockJSON is a lock in a list.
type lockJSON struct {
	Name         string          `json:"name"`
	NameB64      string          `json:"name_b64,omitempty"` // when the name is not UTF-8
	State        staleness.State `json:"state"`
	Expiring     bool            `json:"expiring"`
	Owner        *string         `json:"owner"`
	Hostname     *string         `json:"hostname"`
	PID          *int64          `json:"pid"`
	Purpose      *string         `json:"purpose"`
	Hold         *string         `json:"hold"`
	Token        *string         `json:"token"`
	Revision     string          `json:"revision"`
	LockedAt     *string         `json:"locked_at"`
	LockedIn     *float64        `json:"locked_at_in_seconds"`
	AlertAt      *string         `json:"alert_at"`
	AlertIn      *float64        `json:"alert_at_in_seconds"`
	AutoUnlockAt *string         `json:"auto_unlock_at"`
	AutoUnlockIn *float64        `json:"auto_unlock_at_in_seconds"`
	AliveAt      *string         `json:"alive_at"`
	AliveIn      *float64        `json:"alive_at_in_seconds"`
	Progress     *string         `json:"progress"`
	Waiters      *int            `json:"waiters"`
	WaitingSince *string         `json:"longest_waiting_since"`
	WaitingIn    *float64        `json:"longest_waiting_since_in_seconds"`
	Attributes   map[string]any  `json:"attributes"`
	Problems     []problemJSON   `json:"problems"`
	URL          string          `json:"url"`
}

type problemJSON struct {
	Field  string          `json:"field"`
	Reason metadata.Reason `json:"reason"`
	Text   string          `json:"text"`
}

func (d *Dashboard) lockJSON(r *row, now time.Time) lockJSON {
	j := lockJSON{
		Name: r.Name, State: r.verdict.State, Expiring: r.look == expiring, Owner: known(r.Owner), Hostname: known(r.Hostname),
		PID: known(r.PID), Purpose: known(r.Purpose), Hold: known(r.UUID), Token: known(number64(r.Token)),
		Revision: strconv.FormatInt(r.Revision, 10), Attributes: r.Attributes, URL: d.urls.Lock(r.Name, r.UUID),
		Problems: make([]problemJSON, len(r.Problems)),
	}
	if !utf8.ValidString(r.Name) {
		j.NameB64 = base64.RawURLEncoding.EncodeToString([]byte(r.Name))
	}
	for i, p := range r.Problems {
		j.Problems[i] = problemJSON{p.Field, p.Reason, p.Text}
	}
	j.LockedAt, j.LockedIn = instants(r.LockedAt, now)
	j.AlertAt, j.AlertIn = instants(r.verdict.AlertAt, now)
	j.AutoUnlockAt, j.AutoUnlockIn = instants(r.verdict.AutoUnlockAt, now)
	j.WaitingSince, j.WaitingIn = instants(r.longest, now)
	if r.Alive != nil {
		j.AliveAt, j.AliveIn = instants(r.Alive.At, now)
		j.Progress = known(r.Alive.Progress)
	}
	if d.config.Queues != nil {
		j.Waiters = &r.waiters
	}
	return j
}

// known is nil for the zero value, which stands for "not known".
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func instants(t, now time.Time) (*string, *float64) {
	if t.IsZero() {
		return nil, nil
	}
	s, in := iso(t), float64(t.Sub(now).Milliseconds())/1000
	return &s, &in
}

func (d *Dashboard) meta(now time.Time) meta {
	fresh := d.config.Fresh()
	return meta{AsOf: iso(now), Revision: strconv.FormatInt(fresh.Revision, 10), Stale: fresh.level(now) == stale}
}

func jsonAnswer(data any, m meta, etag string) (answer, error) {
	body, err := json.Marshal(envelope{data, m})
	return answer{Type: "application/json", Body: append(body, '\n'), ETag: etag}, err
}

// listed reads the parameters of a list and finds what it asks for. Other than a page, a program that asks wrongly is told.
func (d *Dashboard) listed(r *http.Request) (s *snapshot, l listRequest, found *result, err error) {
	if s, err = d.loaded(); err != nil {
		return
	}
	l = parseList(r)
	v := r.URL.Query()
	bad := func(text string) error {
		return &problem{Status: http.StatusBadRequest, Code: "bad_query", Title: "Bad query", Detail: text}
	}
	for _, p := range l.query.problems {
		return s, l, nil, bad(plain(p.Term) + ": " + plain(p.Text) + ".")
	}
	if sort := v.Get("sort"); sort != "" && l.order.String() != sort {
		return s, l, nil, bad("sort: there are " + strings.Join(orders, ", ") + ", each also with a - before it.")
	}
	if limit := v.Get("limit"); limit != "" && (strconv.Itoa(l.limit) != limit || l.limit > maxAPILimit) {
		return s, l, nil, bad("limit: wants a number from 1 to " + strconv.Itoa(maxAPILimit) + ".")
	}
	for _, name := range []string{"after", "before"} {
		if _, ok := parseCursor(v.Get(name), listID(l.query, l.order)); v.Get(name) != "" && !ok {
			return s, l, nil, bad(name + ": this cursor belongs to another list.")
		}
	}
	return s, l, s.result(l.query, l.order, d.config.Now()), nil
}

func (d *Dashboard) locksAPI(r *http.Request) (answer, error) {
	s, l, found, err := d.listed(r)
	if err != nil {
		return answer{}, err
	}
	etag := d.listTag(r, s, l, found)
	if a, ok := d.notModified(r, etag); ok {
		return a, nil
	}
	now := d.config.Now()
	w := found.window(l.order, listID(l.query, l.order), l.after, l.before, l.limit)
	data := make([]lockJSON, len(w.rows))
	for i, row := range w.rows {
		data[i] = d.lockJSON(row, now)
	}
	m := d.meta(now)
	m.Total, m.Matched, m.Next = &s.all.Total, &found.counts.Total, known(w.next)
	m.NextAt, _ = instants(s.next, now)
	if fields := r.URL.Query().Get("fields"); fields != "" {
		picked, err := pick(data, strings.Split(fields, ","))
		if err != nil {
			return answer{}, err
		}
		return jsonAnswer(picked, m, etag)
	}
	return jsonAnswer(data, m, etag)
}

// pick keeps the named members of each lock.
func pick(locks []lockJSON, fields []string) ([]map[string]json.RawMessage, error) {
	out := make([]map[string]json.RawMessage, len(locks))
	for i, lock := range locks {
		b, err := json.Marshal(lock)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &out[i]); err != nil {
			return nil, err
		}
		for name := range out[i] {
			if !slices.Contains(fields, name) {
				delete(out[i], name)
			}
		}
	}
	return out, nil
}

type summaryJSON struct {
	Verdict   string   `json:"verdict"`
	Held      int      `json:"held"`
	Alerting  int      `json:"alerting"`
	Expiring  int      `json:"expiring"`
	Expired   int      `json:"expired"`
	Malformed int      `json:"malformed"`
	Waiting   *int     `json:"waiting"`
	OldestAt  *string  `json:"oldest_locked_at"`
	OldestIn  *float64 `json:"oldest_locked_at_in_seconds"`
	LongestAt *string  `json:"longest_waiting_since"`
	LongestIn *float64 `json:"longest_waiting_since_in_seconds"`
	NextName  *string  `json:"next_auto_unlock"`
	NextAt    *string  `json:"next_auto_unlock_at"`
	NextIn    *float64 `json:"next_auto_unlock_at_in_seconds"`
}

func (d *Dashboard) summaryAPI(r *http.Request) (answer, error) {
	s, l, found, err := d.listed(r)
	if err != nil {
		return answer{}, err
	}
	etag := d.listTag(r, s, l, found)
	if a, ok := d.notModified(r, etag); ok {
		return a, nil
	}
	now, c := d.config.Now(), found.counts
	j := summaryJSON{Verdict: d.verdict(s, d.page(r, "").lens).Text.String(), Held: c.Held, Alerting: c.Alerting, Expiring: c.Expiring, Expired: c.Expired, Malformed: c.Malformed}
	j.OldestAt, j.OldestIn = instants(c.Oldest, now)
	j.LongestAt, j.LongestIn = instants(c.Longest, now)
	if d.config.Queues != nil {
		j.Waiting = &c.Waiting
	}
	if c.NextUnlock != nil {
		j.NextName = &c.NextUnlock.Name
		j.NextAt, j.NextIn = instants(c.NextUnlock.verdict.AutoUnlockAt, now)
	}
	m := d.meta(now)
	m.Total, m.Matched = &s.all.Total, &c.Total
	return jsonAnswer(j, m, etag)
}
