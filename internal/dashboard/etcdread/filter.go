package etcdread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const defaultLimit = 100

// Filter has the parameters of a history.
type Filter struct {
	Query    *locks.Query
	from, to time.Time
	limit    int
	After    Cursor
}

// Cursor is the place behind an element of a list that is sorted by time, newest first. Its id, such as the token of a
// hold, distinguishes elements of the same millisecond.
type Cursor struct {
	At time.Time
	ID int64
}

func (c Cursor) String() string {
	if c.At.IsZero() {
		return ""
	}
	return strconv.FormatInt(c.At.UnixMilli(), 36) + "." + strconv.FormatInt(c.ID, 36)
}

// Compare orders the elements of a list.
func (c Cursor) Compare(other Cursor) int {
	return cmp.Or(cmp.Compare(other.At.UnixMilli(), c.At.UnixMilli()), cmp.Compare(other.ID, c.ID))
}

// isBefore reports whether an element at this place comes after the cursor.
func (c Cursor) isBefore(place Cursor) bool { return c.At.IsZero() || c.Compare(place) < 0 }

// ParseLimitAndCursor reads the parameters limit and after. Without the former, the limit is standard.
func ParseLimitAndCursor(v url.Values, standard, most int) (limit int, after Cursor, err error) {
	limit = standard
	if text := v.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > most {
			return 0, after, fmt.Errorf("limit: must be a number from 1 to %d", most)
		}
	}
	if text := v.Get("after"); text != "" {
		at, id, _ := strings.Cut(text, ".")
		milliseconds, err1 := strconv.ParseInt(at, 36, 64)
		number, err2 := strconv.ParseInt(id, 36, 64)
		if after = (Cursor{time.UnixMilli(milliseconds).UTC(), number}); err1 != nil || err2 != nil {
			return 0, after, errors.New("after: this is no cursor of this list")
		}
	}
	return limit, after, nil
}

// Paginate returns at most limit elements behind the cursor, and the cursor of the next page; zero on the last one.
func Paginate[T any](sorted []T, place func(*T) Cursor, after Cursor, limit int) (page []T, next Cursor) {
	begin := slices.IndexFunc(sorted, func(e T) bool { return after.isBefore(place(&e)) })
	if begin < 0 {
		return nil, Cursor{}
	}
	if page = sorted[begin:]; len(page) > limit {
		page = page[:limit]
		next = place(&page[limit-1])
	}
	return page, next
}

// ParseFilter reads the parameters of a history page about these things with at most this many records.
func ParseFilter(v url.Values, about locks.About, most int) (r Filter, err error) {
	r.Query = locks.ParseQuery(v.Get("q"), about)
	if r.limit, r.After, err = ParseLimitAndCursor(v, defaultLimit, most); err != nil {
		return r, err
	}
	for name, t := range map[string]*time.Time{"from": &r.from, "to": &r.to} {
		if text := v.Get(name); text != "" {
			if *t, err = time.Parse(time.RFC3339, text); err != nil {
				return r, fmt.Errorf("%s: must be a time like 2026-11-21T03:00:00Z", name)
			}
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
	var found []T
	for i := range all {
		if ctx.Err() != nil {
			break
		}
		if asked.Covers(place(&all[i]).At) && matches(&all[i]) {
			found = append(found, all[i])
		}
	}
	page := FoundPage[T]{Matched: len(found)}
	page.List, page.Next = Paginate(found, place, asked.After, asked.limit)
	return page, context.Cause(ctx) // also when the reader left while etcd was asked
}

// SearchEndings finds the holds that a request asks for. The error says that the search was stopped.
func SearchEndings(ctx context.Context, asked Filter, all []metadata.Ending) (FoundPage[metadata.Ending], error) {
	place := func(e *metadata.Ending) Cursor { return Cursor{e.EndedAt.Time, e.Token} }
	return search(ctx, asked, all, place, func(e *metadata.Ending) bool { return EndingMatches(e, asked.Query) })
}

// EndingMatches reports whether the query finds a hold that is over, as it was at its end.
func EndingMatches(e *metadata.Ending, q *locks.Query) bool {
	subject := locks.SubjectOfEnding(e)
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
