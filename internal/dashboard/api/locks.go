package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// list is a list of locks that a request asks for.
type list struct {
	request  pages.ListRequest
	snapshot *locks.Snapshot
	etag     string
	found    *locks.Result
}

// list finds what a request asks for. Unlike a page, the API refuses wrong parameters. Without a list, the answer is
// that the client has this version already.
func (a *API) list(r *app.Request) (*list, app.Answer, error) {
	snapshot, err := r.Loaded()
	if err != nil {
		return nil, app.Answer{}, err
	}
	l := &list{request: pages.ParseList(r.URL.Query()), snapshot: snapshot}
	if err := l.check(r.URL.Query()); err != nil {
		return nil, app.Answer{}, app.BadQuery(err.Error())
	}
	l.etag = a.pages.ListTag(r, snapshot, l.request)
	if answer, ok := app.NotModified(r, l.etag); ok {
		return nil, answer, nil
	}
	if l.found, err = snapshot.Search(r.Context(), l.request.Query, l.request.Order, r.Viewpoint().AsOf); err != nil {
		return nil, app.Answer{}, err
	}
	return l, app.Answer{}, nil
}

// check refuses parameters that a page would pass over.
func (l *list) check(v url.Values) error {
	if err := l.request.Query.Err(); err != nil {
		return err
	}
	if sort := v.Get("sort"); sort != "" && l.request.Order.String() != sort {
		return errors.New("sort: there are " + strings.Join(locks.Orders(), ", ") + ", each also with a - before it")
	}
	limit := v.Get("limit")
	if limit != "" && (strconv.Itoa(l.request.Limit) != limit || l.request.Limit > pages.MaxAPILimit) {
		return fmt.Errorf("limit: must be a number from 1 to %d", pages.MaxAPILimit)
	}
	for name := range strings.SplitSeq(v.Get("fields"), ",") {
		if name != "" && !slices.Contains(lockFields(), name) {
			return errors.New("fields: there are " + strings.Join(lockFields(), ", "))
		}
	}
	for _, name := range []string{"after", "before"} {
		if _, ok := locks.ParseCursor(v.Get(name), l.request.ID()); v.Get(name) != "" && !ok {
			return errors.New(name + ": this cursor belongs to another list")
		}
	}
	return nil
}

func (l *list) meta(r *app.Request) meta {
	m := newMeta(r, r.Viewpoint().AsOf)
	m.Total = &l.snapshot.Totals.Total
	m.Matched = &l.found.Counts.Total
	return m
}

func (l *list) answer(m meta, data any) (app.Answer, error) {
	answer, err := m.answer(data)
	answer.ETag = l.etag
	return answer, err
}

func (a *API) ServeLocks(r *app.Request) (app.Answer, error) {
	l, answer, err := a.list(r)
	if l == nil {
		return answer, err
	}
	now := r.Viewpoint().AsOf
	window := l.found.Window(l.request.Order, l.request.ID(), l.request.After, l.request.Before, l.request.Limit)
	data := make([]lockjson.Lock, len(window.Rows))
	for i, row := range window.Rows {
		data[i] = a.Lock(row, now)
	}
	m := l.meta(r)
	m.Next = lockjson.OrNull(window.Next)
	m.NextAt, _ = lockjson.Instant(l.snapshot.Next, now)
	fields := r.URL.Query().Get("fields")
	if fields == "" {
		return l.answer(m, data)
	}
	selected, err := selectFields(data, strings.Split(fields, ","))
	if err != nil {
		return app.Answer{}, err
	}
	return l.answer(m, selected)
}

func lockFields() (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lockjson.Lock]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func selectFields(locks []lockjson.Lock, names []string) (selected []map[string]json.RawMessage, err error) {
	all, err := json.Marshal(locks)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(all, &selected)
	for _, lock := range selected {
		maps.DeleteFunc(lock, func(name string, _ json.RawMessage) bool { return !slices.Contains(names, name) })
	}
	return selected, err
}

type summaryJSON struct {
	Headline  *lockjson.Headline `json:"headline"`
	Held      int                `json:"held"`
	Alerting  int                `json:"alerting"`
	Expiring  int                `json:"expiring"`
	Abandoned int                `json:"abandoned"`
	Expired   int                `json:"expired"`
	Malformed int                `json:"malformed"`
	Waiting   int                `json:"waiting"`
	OldestAt  *string            `json:"oldest_locked_at"`
	OldestIn  *float64           `json:"oldest_locked_at_in_seconds"`
	LongestAt *string            `json:"longest_waiting_since"`
	LongestIn *float64           `json:"longest_waiting_since_in_seconds"`
	Unclaimed int                `json:"unclaimed"`
	FreeName  *string            `json:"longest_unclaimed"`
	FreeAt    *string            `json:"longest_unclaimed_since"`
	FreeIn    *float64           `json:"longest_unclaimed_since_in_seconds"`
	NextName  *string            `json:"next_auto_unlock"`
	NextAt    *string            `json:"next_auto_unlock_at"`
	NextIn    *float64           `json:"next_auto_unlock_at_in_seconds"`
}

func (a *API) ServeSummary(r *app.Request) (app.Answer, error) {
	l, answer, err := a.list(r)
	if l == nil {
		return answer, err
	}
	now := r.Viewpoint().AsOf
	c := l.found.Counts
	said := a.pages.Headline(r)
	j := summaryJSON{Headline: lockjson.NewHeadline(&said.Headline, said.String(), said.Command),
		Held: c.In(metadata.StateHeld), Alerting: c.In(metadata.StateAlerting), Expiring: c.In(metadata.StateExpiring),
		Abandoned: c.In(metadata.StateAbandoned), Expired: c.In(metadata.StateExpired),
		Malformed: c.In(metadata.StateMalformed)}
	j.OldestAt, j.OldestIn = lockjson.Instant(c.Oldest, now)
	j.LongestAt, j.LongestIn = lockjson.Instant(c.Longest, now)
	j.Waiting = c.Waiting
	free := a.pages.Unclaimed(r)
	if j.Unclaimed = len(free); len(free) > 0 {
		j.FreeName = &free[0].Name
		j.FreeAt, j.FreeIn = lockjson.Instant(free[0].Since, now)
	}
	if c.NextUnlock != nil {
		j.NextName = &c.NextUnlock.Name
		j.NextAt, j.NextIn = lockjson.Instant(c.NextUnlock.DueUnlock(), now)
	}
	return l.answer(l.meta(r), j)
}
