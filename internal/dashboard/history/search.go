package history

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// defaultPastLimit is how many records a page of the past has.
const defaultPastLimit = 100

// Request is what the parameters of a history ask for.
type Request struct {
	Query    *locks.Query
	from, to time.Time
	limit    int
	After    Cursor
}

// Cursor is the place behind a record in a list that is sorted by time, newest first.
type Cursor struct {
	At    time.Time
	token int64
}

func (c Cursor) String() string {
	if c.At.IsZero() {
		return ""
	}
	return strconv.FormatInt(c.At.UnixMilli(), 36) + "." + strconv.FormatInt(c.token, 36)
}

// behind reports whether a record comes after the cursor.
func (c Cursor) behind(at time.Time, token int64) bool {
	a := at.UnixMilli()
	b := c.At.UnixMilli()
	return c.At.IsZero() || a < b || a == b && token < c.token
}

func Parse(v url.Values, most int) (Request, error) {
	p := Request{Query: locks.ParseQuery(v.Get("q")), limit: defaultPastLimit}
	bad := func(text string) (Request, error) {
		return p, errors.New(text)
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if p.limit = n; err != nil || n < 1 || n > most {
			return bad("limit: wants a number from 1 to " + strconv.Itoa(most))
		}
	}
	for name, t := range map[string]*time.Time{"from": &p.from, "to": &p.to} {
		if text := v.Get(name); text != "" {
			at, err := time.Parse(time.RFC3339, text)
			if *t = at; err != nil {
				return bad(name + ": wants a time like 2026-11-21T03:00:00Z")
			}
		}
	}
	if text := v.Get("after"); text != "" {
		at, token, ok := cutCursor(text)
		if p.After = (Cursor{time.UnixMilli(at).UTC(), token}); !ok {
			return bad("after: this is no cursor of a history")
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

// During reports whether the request asks for this time.
func (p Request) During(at time.Time) bool {
	return (p.from.IsZero() || !at.Before(p.from)) && (p.to.IsZero() || at.Before(p.to))
}

// Search are the endings that the request asks for: one page of them, how many there are, and the cursor of the next
// page. The error says that the search was stopped.
func (p *Store) Search(ctx context.Context, q Request,
	all []metadata.Ending) (list []metadata.Ending, matched int, next Cursor, err error) {
	ctx, cancel := locks.WithLimit(ctx)
	defer cancel()
	if err := locks.Stopped(ctx); err != nil { // the reader left while etcd was asked
		return nil, 0, Cursor{}, err
	}
	for i := range all {
		if err := locks.Stopped(ctx); err != nil {
			return nil, 0, Cursor{}, err
		}
		e := &all[i]
		if !q.During(e.EndedAt.Time) || !p.Matches(q.Query, e) {
			continue
		}
		if matched++; !q.After.behind(e.EndedAt.Time, e.Token) {
			continue
		}
		if len(list) == q.limit {
			if next.At.IsZero() {
				last := list[len(list)-1]
				next = Cursor{last.EndedAt.Time, last.Token}
			}
			continue
		}
		list = append(list, *e)
	}
	return list, matched, next, nil
}

// Matches reports whether the query finds a hold that is over. Ages and states are those at its end, so that
// state:alerting finds what had alerted.
func (p *Store) Matches(q *locks.Query, e *metadata.Ending) bool {
	if len(q.Terms) == 0 {
		return true
	}
	r := metadata.Record{Name: e.Lock, UUID: e.UUID, Token: e.Token, Owner: e.Owner, Hostname: e.Hostname, PID: e.PID,
		Purpose: e.Purpose, Attributes: e.Attributes,
		LockedAt: e.LockedAt.Time, AlertAt: e.AlertAt.Time, AutoUnlockAt: e.AutoUnlockAt.Time}
	row := locks.NewRow(&r, p.source.Policy, staleness.Moment{Wall: e.EndedAt.Time}, locks.Queue{}, nil)
	row.Ending = e
	return q.Matches(row, e.EndedAt.Time)
}

// SearchActions is one page of the actions that the request asks for. Words are searched in the lock, the actor, the
// holder and the reason; owner: is the actor, host: the client, purpose: the reason. The error says that the search was
// stopped.
func (p *Store) SearchActions(ctx context.Context, q Request,
	all []protocol.Action) (list []protocol.Action, matched int, next Cursor, err error) {
	ctx, cancel := locks.WithLimit(ctx)
	defer cancel()
	for _, a := range all {
		if err := locks.Stopped(ctx); err != nil {
			return nil, 0, Cursor{}, err
		}
		r := metadata.Record{Name: a.Lock, UUID: a.UUID, Token: a.Token, Owner: a.Actor, Hostname: a.Client,
			Purpose: a.Reason + "\n" + a.Ticket + "\n" + a.Holder}
		row := locks.NewRow(&r, p.source.Policy, staleness.Moment{Wall: a.At.Time}, locks.Queue{}, nil)
		if !q.During(a.At.Time) || !q.Query.Matches(row, a.At.Time) {
			continue
		}
		if matched++; !q.After.behind(a.At.Time, a.Token) {
			continue
		}
		if len(list) == q.limit {
			if next.At.IsZero() {
				next = Cursor{list[len(list)-1].At.Time, list[len(list)-1].Token}
			}
			continue
		}
		list = append(list, a)
	}
	return list, matched, next, nil
}

// Sound refuses a query with a term that was left out: programs are told.
func (p Request) Sound() error {
	for _, wrong := range p.Query.Problems {
		return errors.New(text.Visible(wrong.Term) + ": " + text.Visible(wrong.Text))
	}
	return nil
}
