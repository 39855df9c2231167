package dashboard

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/text"
)

// listed reads the parameters of a list and finds what it asks for. Other than a page, a program that asks wrongly is
// told.
func (d *Dashboard) listed(r *site.Request) (s *locks.Snapshot, l pages.ListRequest, found *locks.Result, err error) {
	if s, err = r.Loaded(); err != nil {
		return
	}
	l = pages.ParseList(r)
	v := r.URL.Query()
	for _, p := range l.Query.Problems {
		return s, l, nil, site.BadQuery(text.Visible(p.Term) + ": " + text.Visible(p.Text))
	}
	if sort := v.Get("sort"); sort != "" && l.Order.String() != sort {
		return s, l, nil, site.BadQuery("sort: there are " + strings.Join(locks.Orders(), ", ") +
			", each also with a - before it")
	}
	if limit := v.Get("limit"); limit != "" && (strconv.Itoa(l.Limit) != limit || l.Limit > pages.MaxAPILimit) {
		return s, l, nil, site.BadQuery("limit: wants a number from 1 to " + strconv.Itoa(pages.MaxAPILimit))
	}
	for name := range strings.SplitSeq(v.Get("fields"), ",") {
		if name != "" && !slices.Contains(lockFields(), name) {
			return s, l, nil, site.BadQuery("fields: there are " + strings.Join(lockFields(), ", "))
		}
	}
	for _, name := range []string{"after", "before"} {
		if _, ok := locks.ParseCursor(v.Get(name), locks.ListID(l.Query, l.Order)); v.Get(name) != "" && !ok {
			return s, l, nil, site.BadQuery(name + ": this cursor belongs to another list")
		}
	}
	found, err = s.Result(r.Context(), l.Query, l.Order, r.Viewpoint().AsOf)
	return s, l, found, err
}

func (d *Dashboard) locksAPI(r *site.Request) (site.Answer, error) {
	s, l, found, err := d.listed(r)
	if err != nil {
		return site.Answer{}, err
	}
	etag := d.ListTag(r, s, l, found)
	if a, ok := site.NotModified(r, etag); ok {
		return a, nil
	}
	now := r.Viewpoint().AsOf
	w := found.Window(l.Order, locks.ListID(l.Query, l.Order), l.After, l.Before, l.Limit)
	data := make([]lockjson.Lock, len(w.Rows))
	for i, row := range w.Rows {
		data[i] = d.lockJSON(row, now)
	}
	m := newMeta(r, now)
	m.Total = &s.All.Total
	m.Matched = &found.Counts.Total
	m.Next = lockjson.Known(w.Next)
	m.NextAt, _ = lockjson.Instant(s.Next, now)
	if fields := r.URL.Query().Get("fields"); fields != "" {
		picked, err := pick(data, strings.Split(fields, ","))
		if err != nil {
			return site.Answer{}, err
		}
		return jsonAnswer(picked, m, etag)
	}
	return jsonAnswer(data, m, etag)
}

// lockFields are the names of the members of a lock.
func lockFields() []string {
	lock := reflect.TypeFor[lockjson.Lock]()
	names := make([]string, lock.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(lock.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// pick keeps the named members of each lock.
func pick(locks []lockjson.Lock, fields []string) ([]map[string]json.RawMessage, error) {
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
	Abandoned int      `json:"abandoned"`
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

func (d *Dashboard) summaryAPI(r *site.Request) (site.Answer, error) {
	s, l, found, err := d.listed(r)
	if err != nil {
		return site.Answer{}, err
	}
	etag := d.ListTag(r, s, l, found)
	if a, ok := site.NotModified(r, etag); ok {
		return a, nil
	}
	now := r.Viewpoint().AsOf
	c := found.Counts
	j := summaryJSON{Verdict: d.Verdict(s, r.Viewpoint()).Text.String(), Held: c.Held, Alerting: c.Alerting,
		Expiring: c.Expiring, Abandoned: c.Abandoned, Expired: c.Expired, Malformed: c.Malformed}
	j.OldestAt, j.OldestIn = lockjson.Instant(c.Oldest, now)
	j.LongestAt, j.LongestIn = lockjson.Instant(c.Longest, now)
	if d.Config.Queues != nil {
		j.Waiting = &c.Waiting
	}
	if c.NextUnlock != nil {
		j.NextName = &c.NextUnlock.Name
		j.NextAt, j.NextIn = lockjson.Instant(c.NextUnlock.UnlockAt(), now)
	}
	m := newMeta(r, now)
	m.Total, m.Matched = &s.All.Total, &c.Total
	return jsonAnswer(j, m, etag)
}
