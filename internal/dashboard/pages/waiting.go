package pages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// waitingPage is where people and programs wait, the lock first at which most time is lost.
type waitingPage struct {
	site.SearchPage
	Known   bool // waiters are recorded
	Locks   []contention
	More    int // locks that are not shown
	Waiting int
	Longest *phrase.Moment
	Cycles  []cycleView
}

// contention is a lock and who waits for it.
type contention struct {
	Look        locks.DisplayState // empty: nobody holds it any more
	Name, URL   string
	Owner, Host string
	Use         string     // how a lock that several hold is taken
	Sharers     []lockLink // some of them, by host
	MoreSharers int
	Held        *phrase.Moment
	Longest     *phrase.Moment
	N           int
	First       []WaiterView // in order, as many as fit
	Rest        int
}

const (
	maxContended   = 100
	maxWaitersEach = 5
)

// ServeWaiting answers with the locks that somebody waits for.
func (p *Pages) ServeWaiting(r *site.Request) (site.Answer, error) {
	s, err := r.Loaded()
	if err != nil {
		return site.Answer{}, err
	}
	q := locks.ParseQuery(r.URL.Query().Get("q"))
	v := waitingPage{SearchPage: p.site.SearchPage(r, "waiting", q), Known: p.site.Config.Queues != nil}
	v.JSON = p.site.URLs.To("api/v1/locks", "q", strings.TrimSpace("waiters:>0 "+q.Text), "sort", "waiters")
	if v.Known {
		if err := p.fillWaiting(r, &v, s, q); err != nil {
			return site.Answer{}, err
		}
		found := s.Cycles()
		v.Cycles = p.cycleViews(r, found[:min(len(found), maxCycles)])
	}
	return p.site.Render("waiting", v)
}

// fillWaiting fills in the locks that the query finds. The error says that the search was stopped.
func (p *Pages) fillWaiting(r *site.Request, v *waitingPage, s *locks.Snapshot, q *locks.Query) error {
	ctx, cancel := locks.WithLimit(r.Context())
	defer cancel()
	type queued struct {
		lock    string
		holders []*locks.Row
		queue   []metadata.Waiter
		longest time.Time
	}
	var all []queued
	for lock, queue := range s.Queues {
		if err := locks.Stopped(ctx); err != nil {
			return err
		}
		holders := s.Holders(lock)
		if len(holders) == 0 { // between two holders
			holders = []*locks.Row{p.site.RowNow(r, &metadata.Record{Name: lock}, queue, nil)}
		}
		if len(queue) == 0 || !slices.ContainsFunc(holders, func(r *locks.Row) bool { return q.Matches(r, v.AsOf) }) {
			continue
		}
		one := queued{lock, holders, queue, locks.QueueOf(queue).Longest}
		v.Waiting += len(queue)
		v.Longest = v.Lasting(locks.Earlier(v.longestAt(), one.longest))
		all = append(all, one)
	}
	lost := func(one queued) int64 { return locks.Lost(len(one.queue), one.longest, v.AsOf) }
	slices.SortFunc(all, func(a, b queued) int {
		return cmp.Or(cmp.Compare(lost(b), lost(a)),
			cmp.Compare(len(b.queue), len(a.queue)), cmp.Compare(a.lock, b.lock))
	})
	v.More = max(0, len(all)-maxContended)
	for _, one := range all[:len(all)-v.More] {
		c := p.contention(one.lock, one.holders, v.Viewpoint)
		c.Longest = v.Lasting(one.longest)
		c.N = len(one.queue)
		views := WaiterViews(one.queue, v.Viewpoint)
		c.Rest = max(0, len(views)-maxWaitersEach)
		c.First = views[:len(views)-c.Rest]
		v.Locks = append(v.Locks, c)
	}
	return nil
}

// contention is the lock and who holds it.
func (p *Pages) contention(lock string, holders []*locks.Row, at phrase.Viewpoint) contention {
	c := contention{Name: text.Clip(lock, site.MaxNameShown), URL: p.site.URLs.Lock(lock, "")}
	if r := holders[0]; len(holders) == 1 && r.Name == lock {
		c.Owner = text.Clip(r.Owner, site.MaxWordShown)
		c.Host = site.HostPID(r.Hostname, r.PID)
		c.Held = at.Lasting(r.LockedAt)
		if r.Token != 0 {
			c.Look = r.Display
		}
		return c
	}
	u := locks.UseOf(holders)
	c.Look = u.Display
	c.Use = u.Words()
	c.Held = at.Lasting(u.Oldest)
	for _, r := range holders[:min(len(holders), maxWaitersEach)] {
		host := site.HostPID(r.Hostname, r.PID)
		c.Sharers = append(c.Sharers, lockLink{cmp.Or(host, r.Name), p.site.URLs.Lock(r.Name, r.UUID)})
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
