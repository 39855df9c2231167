package api

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/lockjson"
)

// timelineJSON is a part of the holds and waits of a timeline, and what is not known of them.
type timelineJSON struct {
	Intervals []lockjson.Interval `json:"intervals"`
	Gaps      []gapJSON           `json:"gaps"`
	Since     *string             `json:"releases_since"` // releases are known from here on
	Short     *string             `json:"short_since"`    // so are short holds and waits; null: all are
	Unread    *string             `json:"unread"`         // why etcd could not be read
}

// ServeTimeline answers with who held and who waited within a window, those that began last first.
func (a *API) ServeTimeline(r *app.Request) (app.Answer, error) {
	limit, after, err := parseTimeline(r.URL.Query())
	if err != nil {
		return app.Answer{}, app.BadQuery(err.Error())
	}
	past, err := a.pages.LoadTimeline(r)
	if err != nil {
		return app.Answer{}, err
	}
	if err := past.Query.Sound(); err != nil {
		return app.Answer{}, app.BadQuery(err.Error())
	}
	now := r.Viewpoint().AsOf
	m := newMeta(r, now)
	m.Matched = new(len(past.All))
	found, next := pageOf(past.All, after, limit)
	m.Next = lockjson.Known(next)
	j := timelineJSON{Intervals: make([]lockjson.Interval, len(found)), Unread: lockjson.Known(past.ReadError)}
	for i := range found {
		j.Intervals[i] = newInterval(&found[i], now)
	}
	j.Gaps, j.Since = watched(r, func(t time.Time) bool { return !t.Before(past.From) })
	j.Short, _ = lockjson.Instant(past.IncompleteBefore, now)
	return m.answer(j)
}

// cursor is where an interval stands in a list that is sorted by begin, latest first. The begin does not change while
// somebody reads page after page; the hash tells apart what began in the same millisecond.
type cursor struct {
	begin int64 // in milliseconds
	hash  uint64
}

func placeOf(i *timeline.Interval) cursor {
	id := strings.Join([]string{i.Name, i.ID, strconv.FormatInt(i.Token, 10)}, "\x00")
	return cursor{i.Begin.UnixMilli(), xxhash.Sum64String(id)}
}

func (p cursor) compare(other cursor) int {
	return cmp.Or(cmp.Compare(other.begin, p.begin), cmp.Compare(p.hash, other.hash))
}

func (p cursor) String() string {
	return strconv.FormatInt(p.begin, 36) + "." + strconv.FormatUint(p.hash, 36)
}

// parseTimeline reads how many intervals a request asks for, and after which; nil: from the first.
func parseTimeline(v url.Values) (limit int, after *cursor, err error) {
	limit = pages.MaxAPILimit
	if text := v.Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > pages.MaxAPILimit {
			return 0, nil, fmt.Errorf("limit: wants a number from 1 to %d", pages.MaxAPILimit)
		}
	}
	text := v.Get("after")
	if text == "" {
		return limit, nil, nil
	}
	begin, hash, _ := strings.Cut(text, ".")
	after = &cursor{}
	after.begin, err = strconv.ParseInt(begin, 36, 64)
	if err == nil {
		after.hash, err = strconv.ParseUint(hash, 36, 64)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("after: this is no cursor of a timeline")
	}
	return limit, after, nil
}

// pageOf returns a page of the intervals, and the cursor of the next page; empty: this is the last.
func pageOf(all []timeline.Interval, after *cursor, limit int) (page []timeline.Interval, next string) {
	type placed struct {
		cursor
		*timeline.Interval
	}
	var sorted []placed
	for n := range all {
		at := placeOf(&all[n])
		if after == nil || after.compare(at) < 0 {
			sorted = append(sorted, placed{at, &all[n]})
		}
	}
	slices.SortFunc(sorted, func(a, b placed) int { return a.compare(b.cursor) })
	if len(sorted) > limit {
		sorted = sorted[:limit]
		next = sorted[limit-1].String()
	}
	for _, p := range sorted {
		page = append(page, *p.Interval)
	}
	return page, next
}

func newInterval(i *timeline.Interval, now time.Time) lockjson.Interval {
	j := lockjson.Interval{Name: i.Name, NameBase64: lockjson.Base64(i.Name), Wait: i.Wait,
		Owner: lockjson.Known(i.Owner), Hostname: lockjson.Known(i.Host), PID: lockjson.Known(i.PID)}
	if i.Name != i.Lock {
		j.ShareOf = &i.Lock
	}
	if !i.BeginUnknown {
		j.BeganAt, j.BeganIn = lockjson.Instant(i.Begin, now)
	}
	j.EndedAt, j.EndedIn = lockjson.Instant(i.End, now)
	j.AlertAt, j.AlertIn = lockjson.Instant(i.Alert, now)
	switch {
	case !i.Wait: // the id of a wait is that of its ticket, which is no hold
		j.UUID = lockjson.Known(i.ID)
		j.Token = lockjson.Number(i.Token)
		j.How = lockjson.How(i.Ended)
	case i.Acquired:
		j.How = new("taken")
	case !i.End.IsZero():
		j.How = new("gave_up")
	}
	return j
}
