package dashboard

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// listRequest is what the parameters of a list ask for; page and API read the same.
type listRequest struct {
	query         *query
	order         order
	limit         int
	after, before string
	full          bool // second lines for every lock
}

// Page sizes.
const (
	defaultLimit = 100
	maxAPILimit  = 1000
)

var pageLimits = []int{50, 100, 250}

func parseList(r *http.Request) listRequest {
	v := r.URL.Query()
	l := listRequest{
		query: parseQuery(v.Get("q")), order: parseOrder(v.Get("sort")), limit: defaultLimit,
		after: v.Get("after"), before: v.Get("before"), full: v.Get("density") == "full",
	}
	if n, err := strconv.Atoi(v.Get("limit")); err == nil && n > 0 {
		l.limit = n
	}
	return l
}

// link is the list with some parameters changed; cursors are left out, because they belong to one query and order.
func (l listRequest) link(u urls, change func(*listRequest), cursor ...string) string {
	if change != nil {
		query := *l.query
		l.query = &query
		change(&l)
	}
	sort, limit, density := l.order.String(), strconv.Itoa(l.limit), ""
	if l.order == (order{by: orders[0]}) {
		sort = ""
	}
	if l.limit == defaultLimit {
		limit = ""
	}
	if l.full {
		density = "full"
	}
	return u.To("", append([]string{"q", l.query.text, "sort", sort, "limit", limit, "density", density}, cursor...)...)
}

// listPage is the list of locks.
type listPage struct {
	page
	Verdict  verdict
	Counts   []countView
	Matched  int
	Total    int
	Waiting  sentence
	Chips    []chip
	Problems []queryProblem
	Jump     *lockLink // the lock whose name was typed
	Columns  []column
	Rows     []rowView
	From, To int
	Prev     string
	Next     string
	Limits   []choice
	Density  choice
	Clear    string // the list without filter
	Sort     string
	Limit    int
	Full     bool
	Fragment string // address of what changes
	NextAt   int64  // when a state changes by itself, in milliseconds; 0 = never
	ETag     string
	Part     bool // only what changes is asked for, not the page around it
}

type (
	countView struct {
		Look look
		N    int
		URL  string
		On   bool
	}
	chip     struct{ Text, Remove string }
	choice   struct{ Text, URL string }
	lockLink struct{ Name, URL string }
	column   struct{ Title, Short, URL, Aria string }
)

func (d *Dashboard) list(r *http.Request) (answer, error) {
	s, err := d.loaded()
	if err != nil {
		return answer{}, err
	}
	l := parseList(r)
	if l.limit = min(l.limit, pageLimits[len(pageLimits)-1]); l.limit == 0 {
		l.limit = defaultLimit
	}
	now := d.config.Now()
	result := s.result(l.query, l.order, now)
	etag := d.listTag(r, s, l, result)
	if a, ok := d.notModified(r, etag); ok {
		return a, nil
	}
	view := d.listPage(r, s, l, result)
	view.ETag = etag
	part := "layout"
	if view.Part = r.URL.Query().Get("fragment") == "rows"; view.Part {
		part = "live"
	}
	body, err := d.renderPart("list", part, view)
	return answer{Type: typeHTML, Body: body, ETag: etag, Header: d.heard()}, err
}

// listTag versions everything a list shows but the running of time, which the browser goes on with by itself. A page and its
// fragment share it.
func (d *Dashboard) listTag(r *http.Request, s *snapshot, l listRequest, found *result) string {
	asked := r.URL.Path + l.link(d.urls, nil, "after", l.after, "before", l.before, "fields", r.URL.Query().Get("fields"))
	h := fnv(fnvStart, s.version, found.version, d.traces.current(), fnvText(asked), fnvText(d.config.Version+d.assets.fingerprint),
		fnvText(string(d.config.Fresh().level(d.config.Now()))))
	unlockers, _ := d.unlockers()
	for _, u := range unlockers {
		h = fnv(h, fnvText(u.ID), fnvText(u.Mode), fnvText(fmt.Sprint(u.HeldBack)))
	}
	return fmt.Sprintf(`W/"%016x"`, h)
}

func (d *Dashboard) listPage(r *http.Request, s *snapshot, l listRequest, found *result) listPage {
	id := listID(l.query, l.order)
	w := found.window(l.order, id, l.after, l.before, l.limit)
	v := listPage{
		page: d.page(r, ""), Matched: found.counts.Total, Total: s.all.Total,
		Problems: l.query.problems, From: w.first + 1, To: w.first + len(w.rows),
		Clear: l.link(d.urls, func(l *listRequest) { l.query.text = "" }), Limit: l.limit, Full: l.full,
	}
	v.Here, v.Query = "list", boxText(l.query.text)
	if l.order != (order{by: orders[0]}) {
		v.Sort = l.order.String()
	}
	if w.prev != "" {
		v.Prev = l.link(d.urls, nil, "before", w.prev)
	}
	if w.next != "" {
		v.Next = l.link(d.urls, nil, "after", w.next)
	}
	v.Fragment = l.link(d.urls, nil, "after", l.after, "before", l.before, "fragment", "rows")
	v.JSON = d.urls.To("api/v1/locks", "q", l.query.text, "sort", v.Sort)
	v.Verdict = d.verdict(s, v.lens)
	if v.Icon.Look != "stale" {
		v.Icon = iconOf(s.all)
	}
	if urgent := s.all.Alerting + s.all.Expired; urgent > 0 {
		v.Title = fmt.Sprintf("(%d!) %s", urgent, v.Title)
	}
	if !s.next.IsZero() {
		v.NextAt = s.next.UnixMilli()
	}
	d.fillControls(&v, s, l, found)
	v.Rows = make([]rowView, len(w.rows))
	for i, row := range w.rows {
		v.Rows[i] = d.rowView(row, v.lens, l)
	}
	return v
}

// fillControls adds what filters and sorts.
func (d *Dashboard) fillControls(v *listPage, s *snapshot, l listRequest, found *result) {
	c := found.counts
	for _, count := range []countView{{Look: held, N: c.Held}, {Look: alerting, N: c.Alerting}, {Look: expiring, N: c.Expiring},
		{Look: expired, N: c.Expired}, {Look: malformed, N: c.Malformed}} {
		word := "state:" + string(count.Look)
		for _, t := range l.query.terms {
			count.On = count.On || t.text == word
		}
		count.URL = l.link(d.urls, func(l *listRequest) {
			if l.query.text = l.query.with(word); count.On {
				l.query.text = l.query.dropping(word)
			}
		})
		v.Counts = append(v.Counts, count)
	}
	if d.config.Queues != nil {
		v.Waiting = say(thousands(c.Waiting) + " waiting")
		if longest := v.age(c.Longest); longest != nil {
			v.Waiting = v.Waiting.say(" (longest ").time(longest).say(")")
		}
	}
	for i, t := range l.query.terms {
		v.Chips = append(v.Chips, chip{t.text, l.link(d.urls, func(l *listRequest) { l.query.text = l.query.without(i) })})
	}
	if row := s.find(l.query.text); row != nil && len(l.query.text) <= maxQueryBytes {
		v.Jump = &lockLink{row.Name, d.urls.Lock(row.Name, row.UUID)}
	}
	for _, n := range pageLimits {
		link := choice{Text: strconv.Itoa(n)}
		if n != l.limit {
			link.URL = l.link(d.urls, func(l *listRequest) { l.limit = n })
		}
		v.Limits = append(v.Limits, link)
	}
	v.Density = choice{"details for all", l.link(d.urls, func(l *listRequest) { l.full = true })}
	if l.full {
		v.Density = choice{"details only where needed", l.link(d.urls, func(l *listRequest) { l.full = false })}
	}
	v.Columns = d.columns(l)
}

// columns are the heads of the table; each is a link that sorts by it, and the other way round the second time.
func (d *Dashboard) columns(l listRequest) []column {
	columns := []struct{ title, short, by string }{
		{"State", "", "urgency"}, {"Lock", "", "name"}, {"Owner", "", "owner"}, {"Host:pid", "", "host"}, {"Held", "", "held"},
		{"Alert", "", "alert"}, {"Auto-unlock", "", "unlock"}, {"Waiters", "W", "waiters"},
	}
	out := make([]column, len(columns))
	for i, c := range columns {
		o, aria := order{by: c.by}, ""
		if l.order.by == c.by {
			aria, o.reverse = "ascending", !l.order.reverse
			if l.order.reverse {
				aria = "descending"
			}
		}
		out[i] = column{c.title, c.short, l.link(d.urls, func(l *listRequest) { l.order = o }), aria}
	}
	return out
}

// rowView is one lock in the list.
type rowView struct {
	Look     look
	Version  string // changes with anything it shows
	Name     string
	Head     string // of the name, which may be cut in the middle
	Tail     string
	Odd      bool // the name has characters that need care
	URL      string
	Owner    string
	OwnerURL string
	Host     string
	HostURL  string
	Held     *moment
	Alert    *moment
	Late     bool // the alert is past
	Unlock   *moment
	Waiters  string
	Longest  *moment
	More     bool // there is a second line
	Purpose  string
	Problem  string
	Frame    string // of the program's own code, where it is known
	Alive    *moment
	Progress string
}

func (d *Dashboard) rowView(r *row, at lens, l listRequest) rowView {
	v := rowView{
		Look: r.look, Version: strconv.FormatUint(r.mix, 36), Name: clip(r.Name, maxNameShown), URL: d.urls.Lock(r.Name, r.UUID),
		Owner: clip(r.Owner, maxWordShown), Host: hostPID(clip(r.Hostname, maxWordShown), r.PID), Held: at.age(r.LockedAt), Alert: at.alert(r.verdict.AlertAt),
		Unlock: at.unlock(r.verdict.AutoUnlockAt), Waiters: "–", Longest: at.age(r.longest),
	}
	if at.stale {
		v.Version += "-stale" // the countdowns end in other words
	}
	v.Late = r.look != held && !r.verdict.AlertAt.IsZero() && !r.verdict.AlertAt.After(at.now)
	if v.Odd = !plainASCII(v.Name); !v.Odd {
		v.Head, v.Tail = middle(v.Name)
	}
	if r.Owner != "" {
		v.OwnerURL = l.link(d.urls, func(l *listRequest) { l.query.text = l.query.with(fieldTerm("owner", r.Owner)) })
	}
	if r.Hostname != "" {
		v.HostURL = l.link(d.urls, func(l *listRequest) { l.query.text = l.query.with(fieldTerm("host", r.Hostname)) })
	}
	if d.config.Queues != nil {
		v.Waiters = thousands(r.waiters)
	}
	if r.look == held && !l.full {
		return v
	}
	if v.Purpose = clip(r.Purpose, maxLineShown); len(r.Problems) > 0 {
		v.Problem = clip(r.Problems[0].String(), maxLineShown)
	}
	if n := len(r.Problems); n > 1 {
		v.Problem += fmt.Sprintf(" (and %d more)", n-1)
	}
	if r.Alive != nil {
		v.Alive, v.Progress = at.age(r.Alive.At), clip(r.Alive.Progress, maxLineShown)
	}
	if v.Frame = clip(d.traces.of(r).first, maxLineShown); v.Frame != "" {
		v.Version += "-at"
	}
	v.More = v.Purpose != "" || v.Problem != "" || v.Frame != "" || v.Alive != nil
	return v
}

// How much of a text a list shows, in bytes. The page of the lock shows all.
const (
	maxNameShown = metadata.MaxNameBytes
	maxWordShown = 80
	maxLineShown = 240
)

func hostPID(host string, pid int64) string {
	if pid == 0 {
		return host
	}
	return host + ":" + strconv.FormatInt(pid, 10)
}
