package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waitingPage is where people and programs wait, the longest wait first.
type waitingPage struct {
	page
	Known    bool // waiters are recorded
	Locks    []contention
	More     int // locks that are not shown
	Waiting  int
	Longest  *moment
	Cycles   []cycleView
	Text     string
	Problems []queryProblem
	Path     string
	Clear    string
}

// contention is a lock and who waits for it.
type contention struct {
	Look        look // empty: nobody holds it any more
	Name, URL   string
	Owner, Host string
	Held        *moment
	Longest     *moment
	N           int
	First       []waiterView // in order, as many as fit
	Rest        int
}

const (
	maxContended   = 100
	maxWaitersEach = 5
)

func (d *Dashboard) waiting(r *http.Request) (answer, error) {
	s, err := d.loaded()
	if err != nil {
		return answer{}, err
	}
	q := parseQuery(r.URL.Query().Get("q"))
	v := waitingPage{page: d.page(callerOf(r), "waiting"), Known: d.config.Queues != nil, Text: boxText(q.text), Problems: q.problems,
		Path: d.urls.To("waiting"), Clear: d.urls.To("waiting")}
	v.Follows, v.Here, v.JSON = true, "waiting", d.urls.To("api/v1/locks", "q", "waiters:>0", "sort", "waiters")
	if v.Known {
		queues := d.config.Queues()
		d.fillWaiting(&v, s, q, queues)
		v.Cycles = d.cycleViews(cycles(s, queues))
	}
	body, err := d.render("waiting", v)
	return answer{Type: typeHTML, Body: body}, err
}

func (d *Dashboard) fillWaiting(v *waitingPage, s *snapshot, q *query, queues map[string][]metadata.Waiter) {
	type queued struct {
		row     *row
		queue   []metadata.Waiter
		longest time.Time
	}
	var all []queued
	for lock, queue := range queues {
		held := s.find(lock)
		if held == nil { // between two holders
			held = d.rowNow(&metadata.Record{Name: lock}, queue, nil)
		}
		if len(queue) == 0 || !q.matches(held, v.now) {
			continue
		}
		one := queued{row: held, queue: queue}
		for _, w := range queue {
			one.longest = first(one.longest, w.Since.Time)
		}
		v.Waiting += len(queue)
		v.Longest = v.age(first(v.longestAt(), one.longest))
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b queued) int {
		return cmp.Or(cmp.Compare(instant(a.longest), instant(b.longest)), cmp.Compare(len(b.queue), len(a.queue)), cmp.Compare(a.row.Name, b.row.Name))
	})
	v.More = max(0, len(all)-maxContended)
	for _, one := range all[:len(all)-v.More] {
		c := contention{Name: clip(one.row.Name, maxNameShown), URL: d.urls.Lock(one.row.Name, ""), Owner: clip(one.row.Owner, maxWordShown),
			Host: hostPID(clip(one.row.Hostname, maxWordShown), one.row.PID), Held: v.age(one.row.LockedAt), Longest: v.age(one.longest), N: len(one.queue)}
		if one.row.Token != 0 {
			c.Look = one.row.look
		}
		views := d.waiterViews(one.queue, v.lens)
		c.Rest = max(0, len(views)-maxWaitersEach)
		c.First = views[:len(views)-c.Rest]
		v.Locks = append(v.Locks, c)
	}
}

func (v *waitingPage) longestAt() time.Time {
	if v.Longest == nil {
		return time.Time{}
	}
	return v.Longest.At
}
