package etcdread

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// defaultLimit is how many records a page has.
const defaultLimit = 100

// Filter has the parameters of a history.
type Filter struct {
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

// isBefore reports whether a record at this place comes after the cursor.
func (c Cursor) isBefore(record Cursor) bool {
	a := record.At.UnixMilli()
	b := c.At.UnixMilli()
	return c.At.IsZero() || a < b || a == b && record.token < c.token
}

// ParseFilter reads the parameters of a history page about these things with at most this many records.
func ParseFilter(v url.Values, about locks.About, most int) (Filter, error) {
	r := Filter{Query: locks.ParseQuery(v.Get("q"), about), limit: defaultLimit}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if r.limit = n; err != nil || n < 1 || n > most {
			return r, fmt.Errorf("limit: wants a number from 1 to %d", most)
		}
	}
	for name, t := range map[string]*time.Time{"from": &r.from, "to": &r.to} {
		if text := v.Get(name); text != "" {
			at, err := time.Parse(time.RFC3339, text)
			if *t = at; err != nil {
				return r, fmt.Errorf("%s: wants a time like 2026-11-21T03:00:00Z", name)
			}
		}
	}
	if text := v.Get("after"); text != "" {
		at, token, _ := strings.Cut(text, ".")
		milliseconds, err1 := strconv.ParseInt(at, 36, 64)
		number, err2 := strconv.ParseInt(token, 36, 64)
		if r.After = (Cursor{time.UnixMilli(milliseconds).UTC(), number}); err1 != nil || err2 != nil {
			return r, errors.New("after: this is no cursor of a history")
		}
	}
	return r, nil
}

// Covers reports whether the time is within from and to.
func (r Filter) Covers(at time.Time) bool {
	return (r.from.IsZero() || !at.Before(r.from)) && (r.to.IsZero() || at.Before(r.to))
}

// FoundPage is a page of the results of a filter.
type FoundPage[T any] struct {
	List    []T
	Matched int    // on all pages
	Next    Cursor // of the next page; zero on the last one
}

// search goes through a list that is sorted by time, newest first. place is the cursor behind a record. The error says
// that the search was stopped.
func search[T any](ctx context.Context, asked Filter, all []T, place func(*T) Cursor,
	matches func(*T) bool) (FoundPage[T], error) {
	ctx, cancel := locks.WithLimit(ctx)
	defer cancel()
	var page FoundPage[T]
	for i := range all {
		if locks.Stopped(ctx) != nil {
			break
		}
		at := place(&all[i])
		if !asked.Covers(at.At) || !matches(&all[i]) {
			continue
		}
		page.Matched++
		switch {
		case !asked.After.isBefore(at):
		case len(page.List) < asked.limit:
			page.List = append(page.List, all[i])
		case page.Next == Cursor{}:
			page.Next = place(&page.List[asked.limit-1])
		}
	}
	return page, locks.Stopped(ctx) // also when the reader left while etcd was asked
}

// SearchEndings finds the holds that a request asks for. The error says that the search was stopped.
func SearchEndings(ctx context.Context, asked Filter, all []metadata.Ending) (FoundPage[metadata.Ending], error) {
	place := func(e *metadata.Ending) Cursor { return Cursor{e.EndedAt.Time, e.Token} }
	return search(ctx, asked, all, place, func(e *metadata.Ending) bool { return EndingMatches(e, asked.Query) })
}

// EndingMatches reports whether the query finds a hold that is over, as it was at its end.
func EndingMatches(e *metadata.Ending, q *locks.Query) bool {
	subject := locks.OfEnding(e)
	return q.Matches(&subject, e.EndedAt.Time)
}

// SearchActions finds the actions that a request asks for. Words are searched in the lock, the actor, the holder and
// the reason; owner: is the actor, host: the client, purpose: the reason. The error says that the search was stopped.
func SearchActions(ctx context.Context, asked Filter, all []protocol.Action) (FoundPage[protocol.Action], error) {
	place := func(a *protocol.Action) Cursor { return Cursor{a.At.Time, a.Token} }
	return search(ctx, asked, all, place, func(a *protocol.Action) bool {
		return asked.Query.Matches(&locks.Subject{Name: a.Lock, Owner: a.Actor, Host: a.Client, Hold: a.UUID,
			Purpose: a.Reason + "\n" + a.Ticket + "\n" + a.Holder}, a.At.Time)
	})
}
