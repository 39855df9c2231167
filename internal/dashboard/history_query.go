package dashboard

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// pastRequest is what the parameters of a history ask for.
type pastRequest struct {
	query    *locks.Query
	from, to time.Time
	limit    int
	after    pastCursor
}

// pastCursor is the place behind a record in a list that is sorted by time, newest first.
type pastCursor struct {
	at    time.Time
	token int64
}

func (c pastCursor) String() string {
	if c.at.IsZero() {
		return ""
	}
	return strconv.FormatInt(c.at.UnixMilli(), 36) + "." + strconv.FormatInt(c.token, 36)
}

// behind tells whether a record comes after the cursor.
func (c pastCursor) behind(at time.Time, token int64) bool {
	a := at.UnixMilli()
	b := c.at.UnixMilli()
	return c.at.IsZero() || a < b || a == b && token < c.token
}

func parsePast(r *request, most int) (pastRequest, error) {
	v := r.URL.Query()
	p := pastRequest{query: locks.ParseQuery(v.Get("q")), limit: defaultLimit}
	bad := func(text string) (pastRequest, error) {
		return p, &problem{Status: http.StatusBadRequest, Code: "bad_query", Title: "Bad query", Detail: text}
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if p.limit = n; err != nil || n < 1 || n > most {
			return bad("limit: wants a number from 1 to " + strconv.Itoa(most) + ".")
		}
	}
	for name, t := range map[string]*time.Time{"from": &p.from, "to": &p.to} {
		if text := v.Get(name); text != "" {
			at, err := time.Parse(time.RFC3339, text)
			if *t = at; err != nil {
				return bad(name + ": wants a time like 2026-11-21T03:00:00Z.")
			}
		}
	}
	if text := v.Get("after"); text != "" {
		at, token, ok := cutCursor(text)
		if p.after = (pastCursor{time.UnixMilli(at).UTC(), token}); !ok {
			return bad("after: this is no cursor of a history.")
		}
	}
	return p, nil
}

func cutCursor(text string) (at, token int64, ok bool) {
	for i, c := range text {
		if c == '.' {
			at, err1 := strconv.ParseInt(text[:i], 36, 64)
			token, err2 := strconv.ParseInt(text[i+1:], 36, 64)
			return at, token, err1 == nil && err2 == nil
		}
	}
	return 0, 0, false
}

// during tells whether the request asks for this time.
func (p pastRequest) during(at time.Time) bool {
	return (p.from.IsZero() || !at.Before(p.from)) && (p.to.IsZero() || at.Before(p.to))
}

// found are the endings that the request asks for: one page of them, how many there are, and the cursor of the next
// page. The error says that the search was stopped.
func (d *Dashboard) found(ctx context.Context, p pastRequest,
	all []metadata.Ending) (list []metadata.Ending, matched int, next pastCursor, err error) {
	ctx, cancel := locks.WithLimit(ctx)
	defer cancel()
	if err := locks.Stopped(ctx); err != nil { // the reader left while etcd was asked
		return nil, 0, pastCursor{}, err
	}
	for i := range all {
		if err := locks.Stopped(ctx); err != nil {
			return nil, 0, pastCursor{}, err
		}
		e := &all[i]
		if !p.during(e.EndedAt.Time) || !d.matchesPast(p.query, e) {
			continue
		}
		if matched++; !p.after.behind(e.EndedAt.Time, e.Token) {
			continue
		}
		if len(list) == p.limit {
			if next.at.IsZero() {
				last := list[len(list)-1]
				next = pastCursor{last.EndedAt.Time, last.Token}
			}
			continue
		}
		list = append(list, *e)
	}
	return list, matched, next, nil
}

// matchesPast tells whether the query finds a hold that is over. Ages and states are those at its end, so that
// state:alerting finds what had alerted.
func (d *Dashboard) matchesPast(q *locks.Query, e *metadata.Ending) bool {
	if len(q.Terms) == 0 {
		return true
	}
	r := metadata.Record{Name: e.Lock, UUID: e.UUID, Token: e.Token, Owner: e.Owner, Hostname: e.Hostname, PID: e.PID,
		Purpose: e.Purpose, Attributes: e.Attributes,
		LockedAt: e.LockedAt.Time, AlertAt: e.AlertAt.Time, AutoUnlockAt: e.AutoUnlockAt.Time}
	row := locks.NewRow(&r, d.config.Policy, staleness.Moment{Wall: e.EndedAt.Time}, locks.Queue{}, nil)
	row.Ending = e
	return q.Matches(row, e.EndedAt.Time)
}
