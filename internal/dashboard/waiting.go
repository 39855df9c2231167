package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waitingPage is where people and programs wait, the longest wait first.
type waitingPage struct {
	page
	Known   bool // waiters are recorded
	Locks   []contention
	More    int // locks that are not shown
	Waiting int
	Longest *phrase.Moment
	Cycles  []cycleView
	searched
}

// contention is a lock and who waits for it.
type contention struct {
	Look        look // empty: nobody holds it any more
	Name, URL   string
	Owner, Host string
	Use         string     // how a lock that several hold is taken
	Sharers     []lockLink // some of them, by host
	MoreSharers int
	Held        *phrase.Moment
	Longest     *phrase.Moment
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
	v := waitingPage{page: d.page(callerOf(r), "waiting"), Known: d.config.Queues != nil,
		searched: d.searches("waiting", q)}
	v.page = v.searching(v.page)
	v.Follows = true
	v.Here = "waiting"
	v.JSON = d.urls.To("api/v1/locks", "q", strings.TrimSpace("waiters:>0 "+q.text), "sort", "waiters")
	if v.Known {
		queues := d.config.Queues()
		if err := d.fillWaiting(r.Context(), &v, s, q, queues); err != nil {
			return answer{}, err
		}
		v.Cycles = d.cycleViews(cycles(s, queues))
	}
	body, err := d.render("waiting", v)
	return answer{Type: typeHTML, Body: body}, err
}

// fillWaiting fills in the locks that the query finds. The error says that the search was stopped.
func (d *Dashboard) fillWaiting(ctx context.Context, v *waitingPage, s *snapshot, q *query,
	queues map[string][]metadata.Waiter) error {
	ctx, cancel := searching(ctx)
	defer cancel()
	type queued struct {
		lock    string
		holders []*row
		queue   []metadata.Waiter
		longest time.Time
	}
	var all []queued
	for lock, queue := range queues {
		if err := stopped(ctx); err != nil {
			return err
		}
		holders := s.holders(lock)
		if len(holders) == 0 { // between two holders
			holders = []*row{d.rowNow(&metadata.Record{Name: lock}, queue, nil)}
		}
		if len(queue) == 0 || !slices.ContainsFunc(holders, func(r *row) bool { return q.matches(r, v.AsOf) }) {
			continue
		}
		one := queued{lock, holders, queue, lineOf(queue).longest}
		v.Waiting += len(queue)
		v.Longest = v.Lasting(first(v.longestAt(), one.longest))
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b queued) int {
		return cmp.Or(cmp.Compare(instant(a.longest), instant(b.longest)), cmp.Compare(len(b.queue), len(a.queue)),
			cmp.Compare(a.lock, b.lock))
	})
	v.More = max(0, len(all)-maxContended)
	for _, one := range all[:len(all)-v.More] {
		c := d.contention(one.lock, one.holders, v.Viewpoint)
		c.Longest = v.Lasting(one.longest)
		c.N = len(one.queue)
		views := d.waiterViews(one.queue, v.Viewpoint)
		c.Rest = max(0, len(views)-maxWaitersEach)
		c.First = views[:len(views)-c.Rest]
		v.Locks = append(v.Locks, c)
	}
	return nil
}

// contention is the lock and who holds it.
func (d *Dashboard) contention(lock string, holders []*row, at phrase.Viewpoint) contention {
	c := contention{Name: text.Clip(lock, maxNameShown), URL: d.urls.Lock(lock, "")}
	if r := holders[0]; len(holders) == 1 && r.Name == lock {
		c.Owner, c.Host, c.Held = text.Clip(r.Owner, maxWordShown), hostPID(text.Clip(r.Hostname, maxWordShown),
			r.PID), at.Lasting(r.LockedAt)
		if r.Token != 0 {
			c.Look = r.look
		}
		return c
	}
	u := useOf(holders)
	c.Look = u.look
	c.Use = u.words()
	c.Held = at.Lasting(u.oldest)
	for _, r := range holders[:min(len(holders), maxWaitersEach)] {
		text := hostPID(text.Clip(r.Hostname, maxWordShown), r.PID)
		c.Sharers = append(c.Sharers, lockLink{cmp.Or(text, r.Name), d.urls.Lock(r.Name, r.UUID)})
	}
	c.MoreSharers = len(holders) - len(c.Sharers)
	return c
}

func (v *waitingPage) longestAt() time.Time {
	if v.Longest == nil {
		return time.Time{}
	}
	return v.Longest.At
}
