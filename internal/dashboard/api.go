package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The JSON API, version 1. It only grows. Names are in snake case; times come as RFC 3339 and, for callers whose clock
// is wrong, as seconds relative to as_of; revisions are strings, because they outgrow the numbers of JavaScript; what
// is not known is null, never 0 or "".

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
	ShareOf      *string         `json:"share_of"` // the lock that several hold, of which this is a part
	URL          string          `json:"url"`
}

type problemJSON struct {
	Field  string          `json:"field"`
	Reason metadata.Reason `json:"reason"`
	Text   string          `json:"text"`
}

func (d *Dashboard) lockJSON(r *locks.Row, now time.Time) lockJSON {
	j := lockJSON{
		Name: r.Name, State: r.Verdict.State, Expiring: r.Display == locks.Expiring, Owner: known(r.Owner),
		Hostname: known(r.Hostname),
		PID:      known(r.PID), Purpose: known(r.Purpose), Hold: known(r.UUID), Token: known(site.Number(r.Token)),
		Revision: strconv.FormatInt(r.Revision, 10), Attributes: r.Attributes, URL: d.Urls.Lock(r.Name, r.UUID),
		Problems: make([]problemJSON, len(r.Problems)),
	}
	if !utf8.ValidString(r.Name) {
		j.NameB64 = base64.RawURLEncoding.EncodeToString([]byte(r.Name))
	}
	for i, p := range r.Problems {
		j.Problems[i] = problemJSON{p.Field, p.Reason, p.Text}
	}
	j.LockedAt, j.LockedIn = instants(r.LockedAt, now)
	j.AlertAt, j.AlertIn = instants(r.Verdict.AlertAt, now)
	j.AutoUnlockAt, j.AutoUnlockIn = instants(r.Verdict.AutoUnlockAt, now)
	j.WaitingSince, j.WaitingIn = instants(r.Longest, now)
	if r.Share != nil {
		j.ShareOf = known(r.Share.Lock)
	}
	if r.Alive != nil {
		j.AliveAt, j.AliveIn = instants(r.Alive.At, now)
		j.Progress = known(r.Alive.Progress)
	}
	if d.Config.Queues != nil {
		j.Waiters = &r.Waiters
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
	s := phrase.ISO(t)
	in := float64(t.Sub(now).Milliseconds()) / 1000
	return &s, &in
}

func newMeta(r *site.Request, asOf time.Time) meta {
	return meta{AsOf: phrase.ISO(asOf), Revision: strconv.FormatInt(r.Fresh.Revision, 10),
		Stale: r.Level() == locks.Stale}
}

func jsonAnswer(data any, m meta, etag string) (site.Answer, error) {
	body, err := json.Marshal(envelope{data, m})
	return site.Answer{Type: "application/json", Body: append(body, '\n'), ETag: etag}, err
}
