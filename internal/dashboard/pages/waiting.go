package pages

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type waitingPage struct {
	app.SearchPage
	Locks   []contention
	More    int // locks that are not shown
	Waiting int
	Longest *app.TimeText
	Free    int // unclaimed locks
	Cycles  []cycleView
}

type contention struct {
	State       metadata.State // empty: nobody holds it any more
	Name, URL   string
	Owner, Host string
	Use         string // how a lock that several hold is taken
	Sharers     []Link // some of them, by host
	MoreSharers int
	Held        *app.TimeText
	Free        *app.TimeText // since when nobody takes it
	QueueView
}

const (
	maxContended   = 100
	maxWaitersEach = 5
	maxWaiters     = 50 // of one lock, on its page
)

func (p *Pages) ServeWaiting(r *app.Request) (app.Answer, error) {
	s, err := r.Loaded()
	if err != nil {
		return app.Answer{}, err
	}
	q := locks.ParseQuery(r.URL.Query().Get("q"), locks.AboutLocks)
	v := waitingPage{SearchPage: p.app.SearchPage(r, "waiting", q)}
	v.JSON = p.app.URLs.To("api/v1/locks", "q", strings.TrimSpace("waiters:>0 "+q.Text))
	if err := p.fillWaiting(r, &v, q); err != nil {
		return app.Answer{}, err
	}
	found := s.Cycles()
	v.Cycles = p.cycleViews(r, found[:min(len(found), maxCycles)])
	return p.app.Render("waiting", v)
}

type queued struct {
	lock    string
	class   locks.Class
	state   metadata.State // of its most urgent holder
	holders []*locks.Row
	queue   []metadata.Waiter
	free    time.Time // since when it has been unclaimed; zero: it is not
}

// queuesOf returns the locks that have waiters and match the query, in the order of the list. The error says that the
// search was stopped.
func (p *Pages) queuesOf(r *app.Request, q *locks.Query) (all []queued, err error) {
	ctx, cancel := locks.WithLimit(r.Context())
	defer cancel()
	s, asOf := r.Snapshot(), r.Viewpoint().AsOf
	found, err := s.Search(ctx, q, locks.Order{By: locks.MostUrgent}, asOf)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, row := range found.Rows {
		one := queued{lock: row.Record.QueueName(), class: found.Class(row)}
		switch {
		case row.Waiters == 0:
			continue
		case row.Leased != nil:
			one.holders, one.queue = []*locks.Row{row}, row.Leased.Waiters
		case known[one.lock]:
			continue
		default:
			known[one.lock] = true
			one.queue = s.Queues[one.lock]
			if one.holders = s.Holders(one.lock); len(one.holders) > 0 { // whose name may be too long to find them
				row = locks.NewHeldLock(one.lock, one.holders).Row
			}
		}
		one.state = row.StateIn(found.Class(row))
		all = append(all, one)
	}
	for _, free := range p.freeIn(r, q) {
		known[free.Name] = true
		after := sort.Search(len(all), func(i int) bool { return all[i].class > locks.ClassUnclaimed })
		all = slices.Insert(all, after, queued{lock: free.Name, class: locks.ClassUnclaimed, free: free.Since,
			queue: s.Queues[free.Name]})
	}
	for _, lock := range slices.Sorted(maps.Keys(s.Queues)) { // those between two holders
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if !known[lock] && len(s.Queues[lock]) > 0 && len(s.Holders(lock)) == 0 && s.Finds(q, lock, asOf) {
			all = append(all, queued{lock: lock, queue: s.Queues[lock]})
		}
	}
	return all, nil
}

// fillWaiting fills in the locks that the query finds. The error says that the search was stopped.
func (p *Pages) fillWaiting(r *app.Request, v *waitingPage, q *locks.Query) error {
	all, err := p.queuesOf(r, q)
	if err != nil {
		return err
	}
	at := r.Viewpoint()
	var longest time.Time
	for _, one := range all {
		v.Waiting += len(one.queue)
		longest = protocol.Earlier(longest, locks.SummarizeWaiters(one.queue, at.AsOf).Longest)
		if !one.free.IsZero() {
			v.Free++
		}
	}
	v.Longest = v.Elapsed(longest)
	v.More = max(0, len(all)-maxContended)
	for _, one := range all[:len(all)-v.More] {
		v.Locks = append(v.Locks, p.contentionOf(&one, at))
	}
	return nil
}

// contentionOf returns the lock, who holds it, and who waits for it.
func (p *Pages) contentionOf(one *queued, at app.Viewpoint) contention {
	c := contention{Name: text.Clip(one.lock, app.MaxNameShown), URL: p.app.URLs.Lock(one.lock, ""), State: one.state,
		Free: at.Elapsed(one.free), QueueView: NewQueueView(one.queue, maxWaitersEach, at)}
	if len(one.holders) == 0 {
		return c
	}
	if r := one.holders[0]; len(one.holders) == 1 && r.Name == one.lock {
		c.Owner = text.Clip(r.Owner, app.MaxWordShown)
		c.Host = app.HostPID(r.Hostname, r.PID)
		c.Held = at.Elapsed(r.LockedAt)
		if r.Token == 0 {
			c.State = ""
		}
		return c
	}
	use := locks.SummarizeHolders(one.holders)
	c.Use = use.Describe()
	c.Held = at.Elapsed(use.Oldest)
	for _, r := range one.holders[:min(len(one.holders), maxWaitersEach)] {
		host := app.HostPID(r.Hostname, r.PID)
		c.Sharers = append(c.Sharers, Link{cmp.Or(host, r.Name), p.app.URLs.Lock(r.Name, r.UUID)})
	}
	c.MoreSharers = len(one.holders) - len(c.Sharers)
	return c
}

type WaiterView struct {
	Place   int
	Owner   string
	Host    string
	Purpose string
	Since   *app.TimeText
	Timeout *app.TimeText
}

// sentence names the waiter, and says for how long it has waited.
func (v WaiterView) sentence() app.RichText {
	who := processText(v.Owner, v.Host, 0)
	if v.Since == nil {
		return who
	}
	return who.Plain(" for ").Time(v.Since)
}

type QueueView struct {
	N       int
	Longest *app.TimeText
	First   []WaiterView // in order, as many as fit
	Rest    int
}

// NewQueueView shows the queue of a lock, at most so many of the waiters.
func NewQueueView(queue []metadata.Waiter, most int, at app.Viewpoint) QueueView {
	rest := max(0, len(queue)-most)
	v := QueueView{N: len(queue), Longest: at.Elapsed(locks.SummarizeWaiters(queue, at.AsOf).Longest), Rest: rest}
	for i, w := range queue[:len(queue)-rest] {
		v.First = append(v.First, WaiterView{i + 1, w.Owner, locks.HostPID(w.Hostname, w.PID), w.Purpose,
			at.Elapsed(w.Since.Time), at.Alert(w.TimeoutAt.Time)})
	}
	return v
}

const (
	maxCycles      = 10
	maxCycleSteps  = 20
	maxHoldersStep = 5 // who are named in one step
)

// cycleView is a cycle for people: who waits for which lock of whom.
type cycleView struct {
	Steps      []cycleStep
	More       int // steps that are not shown
	Since      *app.TimeText
	InHeadline bool // the page says already that they wait for each other, and since when
}

type cycleStep struct{ Who, Lock, URL, Held string }

func (p *Pages) cycleViews(r *app.Request, found []deadlock.Cycle) []cycleView {
	var views []cycleView
	at := r.Viewpoint()
	for _, c := range found {
		v := cycleView{More: max(0, len(c.Waits)-maxCycleSteps), Since: at.Elapsed(c.Since)}
		for _, w := range c.Waits[:len(c.Waits)-v.More] {
			v.Steps = append(v.Steps, cycleStep{shownProcess(w.Who), text.Clip(w.Lock, app.MaxNameShown),
				r.App.URLs.Lock(w.Lock, ""), heldBy(w.Held)})
		}
		views = append(views, v)
	}
	return views
}

// heldBy names the holders of the lock that are in the cycle.
func heldBy(all []deadlock.Process) string {
	var names []string
	for _, p := range all[:min(len(all), maxHoldersStep)] {
		names = append(names, shownProcess(p))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, app.Plural(more, "other", "others"))
	}
	return strings.Join(names, " and ")
}

func shownProcess(p deadlock.Process) string {
	host := app.HostPID(p.Host, p.PID)
	if p.Owner == "" {
		return host
	}
	return text.Clip(p.Owner, app.MaxWordShown) + " on " + host
}

// cyclesOf returns the cycles that the lock, or the one that it is a share of, is part of. The first one is what a
// headline is about.
func (p *Pages) cyclesOf(r *app.Request, lock string, said locks.Class) []cycleView {
	s := r.Snapshot()
	if r := s.Find(lock); r != nil {
		lock = r.Record.QueueName()
	}
	var with []deadlock.Cycle
	for _, c := range s.Cycles() {
		if len(with) < maxCycles && slices.ContainsFunc(c.Waits, func(w deadlock.Wait) bool { return w.Lock == lock }) {
			with = append(with, c)
		}
	}
	views := p.cycleViews(r, with)
	if said == locks.ClassDeadlock && len(views) > 0 {
		views[0].InHeadline = true
	}
	return views
}
