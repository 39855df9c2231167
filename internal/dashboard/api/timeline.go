package api

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
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

func (a *API) ServeTimeline(r *app.Request) (app.Answer, error) {
	limit, after, err := etcdread.ParseLimitAndCursor(r.URL.Query(), pages.MaxAPILimit, pages.MaxAPILimit)
	if err != nil {
		return app.Answer{}, app.BadQuery(err.Error())
	}
	past, err := a.pages.LoadTimeline(r)
	if err != nil {
		return app.Answer{}, err
	}
	if err := past.Query.Err(); err != nil {
		return app.Answer{}, app.BadQuery(err.Error())
	}
	now := r.Viewpoint().AsOf
	m := newMeta(r, now)
	m.Matched = new(len(past.All))
	found, next := pageOf(past.All, after, limit)
	m.Next = lockjson.OrNull(next.String())
	j := timelineJSON{Intervals: make([]lockjson.Interval, len(found)), Unread: lockjson.OrNull(past.ReadError)}
	for i := range found {
		j.Intervals[i] = newInterval(&found[i], now)
	}
	j.Gaps, j.Since = watchGaps(r, func(t time.Time) bool { return !t.Before(past.From) })
	j.Short, _ = lockjson.Instant(past.IncompleteBefore, now)
	return m.answer(j)
}

// pageOf returns a page of the intervals, those that began last first, and the cursor of the next page. The begin does
// not change while somebody reads page after page.
func pageOf(all []timeline.Interval, after etcdread.Cursor, limit int) ([]timeline.Interval, etcdread.Cursor) {
	place := func(i *timeline.Interval) etcdread.Cursor {
		id := strings.Join([]string{i.Name, i.ID, strconv.FormatInt(i.Token, 10)}, "\x00")
		return etcdread.Cursor{At: i.Begin, ID: int64(xxhash.Sum64String(id))}
	}
	slices.SortFunc(all, func(a, b timeline.Interval) int {
		if order := cmp.Compare(b.Begin.UnixMilli(), a.Begin.UnixMilli()); order != 0 {
			return order // most often, and without the costly id
		}
		return place(&a).Compare(place(&b))
	})
	return etcdread.Paginate(all, place, after, limit)
}

func newInterval(i *timeline.Interval, now time.Time) lockjson.Interval {
	j := lockjson.Interval{Name: i.Name, NameBase64: lockjson.Base64(i.Name), Wait: i.Wait,
		Owner: lockjson.OrNull(i.Owner), Hostname: lockjson.OrNull(i.Host), PID: lockjson.OrNull(i.PID)}
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
		j.UUID = lockjson.OrNull(i.ID)
		j.Token = lockjson.Text(i.Token)
		j.How = lockjson.EndingWord(i.Ended)
	case i.Acquired:
		j.How = new("taken")
	case !i.End.IsZero():
		j.How = new("gave_up")
	}
	return j
}
