package pages

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// ListRequest is what the parameters of a list ask for; page and API read the same.
type ListRequest struct {
	Query         *locks.Query
	Order         locks.Order
	Limit         int
	After, Before string
	group         bool // in sections by owner
}

// Page sizes.
const (
	defaultLimit = 100
	maxLimit     = 250
	MaxAPILimit  = 1000
)

func ParseList(v url.Values) ListRequest {
	l := ListRequest{
		Query: locks.ParseQuery(v.Get("q"), locks.AboutLocks), Order: locks.ParseOrder(v.Get("sort")),
		Limit: defaultLimit,
		After: v.Get("after"), Before: v.Get("before"), group: v.Get("group") == "owner",
	}
	if n, err := strconv.Atoi(v.Get("limit")); err == nil && n > 0 {
		l.Limit = n
	}
	return l
}

// ID returns the fingerprint that ties a cursor to the list.
func (l ListRequest) ID() string { return locks.ListID(l.Query, l.Order) }

// link returns the list with some parameters changed; cursors are left out, because they belong to one query and order.
func (l ListRequest) link(u app.URLs, change func(*ListRequest), cursor ...string) string {
	if change != nil {
		query := *l.Query
		l.Query = &query
		change(&l)
	}
	parameters := []string{"q", l.Query.Text, "sort", l.sort()}
	if l.Limit != defaultLimit {
		parameters = append(parameters, "limit", strconv.Itoa(l.Limit))
	}
	if l.group {
		parameters = append(parameters, "group", "owner")
	}
	return u.To("", append(parameters, cursor...)...)
}

// sort returns the order as a parameter; empty for the default.
func (l ListRequest) sort() string {
	if l.Order == (locks.Order{By: locks.MostUrgent}) {
		return ""
	}
	return l.Order.String()
}

type listPage struct {
	app.Page
	Headline    Headline
	Sections    []section
	Matched     int
	Total       int
	Waiting     app.RichText
	Text        string // the search, as far as it was read
	Problems    []locks.QueryProblem
	Jump        *Link // the lock whose name was typed
	Table       lockTable
	Groups      []groupView // instead of the table
	Owners      int         // all groups
	From, To    int
	Prev        string
	Next        string
	Every       []int // seconds between two looks that can be chosen
	Group       Link
	ForceUnlock Link // to the form for all holds that are found; empty if the caller may not
	Grouped     bool
	Clear       string // the list without filter
	Sort        string
	Limit       int
	Fragment    string // address of what changes
	NextAt      int64  // when a state changes by itself, or silence of etcd becomes a fact, in milliseconds
	ETag        string
	OtherKeys   int      // keys of other lock libraries, whose locks are not shown
	Stale       []string // why locks of other libraries are not current
	Part        bool     // only what changes is asked for, not the page around it
}

type (
	// Link is a link. Without a URL, it is plain text.
	Link   struct{ Text, URL string }
	column struct {
		Title, URL, Aria string
		Second           *column // what else its cells show
	}
)

func (p *Pages) ServeList(r *app.Request) (app.Answer, error) {
	s, err := r.Loaded()
	if err != nil {
		return app.Answer{}, err
	}
	l := ParseList(r.URL.Query())
	l.Limit = min(l.Limit, maxLimit)
	etag := p.ListTag(r, s, l)
	if a, ok := app.NotModified(r, etag); ok {
		return a, nil
	}
	result, err := s.Search(r.Context(), l.Query, l.Order, r.Viewpoint().AsOf)
	if err != nil {
		return app.Answer{}, err
	}
	view := p.listPage(r, s, l, result)
	view.ETag = etag
	part := "layout"
	if view.Part = r.URL.Query().Get("fragment") == "rows"; view.Part {
		part = "live"
	}
	a, err := p.app.RenderPart("list", part, view)
	a.ETag = etag
	a.Header = app.HeardHeader(r)
	return a, err
}

// ListTag versions everything a list shows but the running of time, which the browser goes on with by itself. A query
// that depends on the clock has another version each second. A page and its fragment share it.
func (p *Pages) ListTag(r *app.Request, s *locks.Snapshot, l ListRequest) string {
	_, _, otherKeys := p.app.Config.View.Foreign()
	shown := []any{s.Totals.Version, r.URL.Path, l.link(p.app.URLs, nil, "after", l.After, "before", l.Before, "fields",
		r.URL.Query().Get("fields")), p.app.Config.Version, p.app.URLs.Assets, r.Level(), r.Caller.Name,
		r.Caller.Permissions, len(s.Cycles()), p.app.Config.Alarm(), p.app.Config.LeasedProblems(),
		otherKeys}
	for _, l := range p.Unclaimed(r) { // time alone makes a lock one of them
		shown = append(shown, l.Name, l.Waiters, l.Since)
	}
	if l.Query.DependsOnClock() {
		shown = append(shown, r.Viewpoint().AsOf.Unix())
	}
	for _, u := range p.app.Config.View.Unlockers() {
		shown = append(shown, u.ID, u.Mode, u.HeldBack, u.RemovalPolicy)
	}
	parts, err := json.Marshal(shown)
	if err != nil {
		return "" // then it is sent each time
	}
	return fmt.Sprintf(`W/"%016x"`, xxhash.Sum64(parts))
}

func (p *Pages) listPage(r *app.Request, s *locks.Snapshot, l ListRequest, found *locks.Result) listPage {
	w := found.Window(l.Order, l.ID(), l.After, l.Before, l.Limit)
	if l.group {
		w = locks.Window{}
	}
	v := listPage{
		Page: p.app.Page(r, ""), Matched: found.Counts.Total, Total: s.Totals.Total,
		Problems: l.Query.Problems, From: w.First + 1, To: w.First + len(w.Rows),
		Clear: l.link(p.app.URLs, func(l *ListRequest) { l.Query.Text = "" }), Limit: l.Limit, Grouped: l.group,
	}
	_, _, v.OtherKeys = p.app.Config.View.Foreign()
	v.Stale = p.app.Config.LeasedProblems()
	v.NavEntry = "list"
	if l.group {
		v.NavEntry = "owners"
	}
	v.Query = app.BoxText(l.Query.Text)
	v.AutoRefresh = true
	v.Sort = l.sort()
	v.ForceUnlock = p.forceUnlockLink(r, l.Query, found.Counts.Total-found.Counts.Leased)
	if w.Prev != "" {
		v.Prev = l.link(p.app.URLs, nil, "before", w.Prev)
	}
	if w.Next != "" {
		v.Next = l.link(p.app.URLs, nil, "after", w.Next)
	}
	v.Fragment = l.link(p.app.URLs, nil, "after", l.After, "before", l.Before, "fragment", "rows")
	v.JSON = p.app.URLs.To("api/v1/locks", "q", l.Query.Text, "sort", v.Sort)
	v.Headline = p.Headline(r)
	v.Headline.Acknowledge = p.acknowledgeURL(r, v.Headline)
	v.Icon = v.Headline.Icon()
	if v.Headline.Class == locks.ClassStale {
		v.Banner = nil // it says the same
	}
	if urgent := s.Totals.PastDeadline(); urgent > 0 {
		v.Title = fmt.Sprintf("(%d!) %s", urgent, v.Title)
	}
	v.NextAt = protocol.Earlier(s.Next, r.Fresh.StaleAt()).UnixMilli()
	for _, seconds := range []int{2, 5, 10, 30, 60} {
		if float64(seconds) >= v.MinRefresh {
			v.Every = append(v.Every, seconds)
		}
	}
	free := p.freeIn(r, l.Query)
	p.fillControls(&v, s, l, found.Counts, free)
	v.Sections = p.sections(r, found, free)
	if l.group {
		p.groupViews(&v, r, l, found)
	} else {
		v.Table = p.newTable(r, w.Rows, l, found.Class)
		if v.Sort == "" {
			p.fillSections(&v, r, found, w, free)
		}
		v.Table.Caption = fmt.Sprintf("Locks, %d to %d of %d", v.From, v.To, v.Matched)
	}
	return v
}
