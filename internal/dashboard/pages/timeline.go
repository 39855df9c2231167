package pages

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
)

type timelinePage struct {
	app.SearchPage
	Window    string
	Chart     *chart
	ReadError string // why etcd could not be asked
}

// window is how far back a chart goes.
type window struct {
	param, text string
	length      time.Duration
}

func windows() []window {
	return []window{{"15m", "15 min", 15 * time.Minute}, {"1h", "1 h", time.Hour}, {"6h", "6 h", 6 * time.Hour},
		{"24h", "24 h", timeline.MaxAge}}
}

func windowOf(r *app.Request, standard window) (window, error) {
	asked := r.URL.Query().Get("window")
	if asked == "" {
		return standard, nil
	}
	for _, w := range windows() {
		if w.param == asked {
			return w, nil
		}
	}
	return standard, app.BadQuery("window: must be 15m, 1h, 6h or 24h")
}

// watchedWindow returns the last hour or, until the dashboard has watched for an hour, the last 15 minutes.
func watchedWindow(r *app.Request) window {
	if _, since := r.App.History.WatchGaps(r.Now, r.Fresh); r.Now.Sub(since) < time.Hour {
		return windows()[0]
	}
	return windows()[1]
}

// How many lanes a chart of locks has, and one of processes.
const (
	maxLockLanes    = 50
	maxProcessLanes = 20
)

func (p *Pages) ServeTimeline(r *app.Request) (app.Answer, error) {
	past, err := p.loadTimeline(r, watchedWindow(r))
	if err != nil {
		return app.Answer{}, err
	}
	v := timelinePage{SearchPage: p.app.SearchPage(r, "timeline", past.Query), Window: past.window.param,
		ReadError: past.ReadError}
	v.JSON = p.app.URLs.To("api/v1/timeline", "q", past.Query.Text, "window", v.Window)
	v.Clear = p.app.URLs.To("timeline", "window", v.Window)
	d := &chartBuilder{p: p, at: r.Viewpoint(), byLock: true}
	v.Chart = d.build(r, &past, timeline.Options{Lanes: maxLockLanes, Order: timeline.ByTimeWaited,
		Lane: func(i *timeline.Interval) string { return i.Lock }})
	v.Chart.addWindows(past.window, func(w string) string {
		return p.app.URLs.To("timeline", "q", past.Query.Text, "window", w)
	})
	v.Chart.JSON = v.JSON
	return p.app.Render("timeline", v)
}

// Timeline is the holds and waits within a window.
type Timeline struct {
	Query            *locks.Query
	All              []timeline.Interval
	From             time.Time // the beginning of the window
	IncompleteBefore time.Time // until when short ones may be missing; zero: none is
	ReadError        string    // why etcd could not be asked
	window           window
}

// LoadTimeline loads the timeline that the parameters window and q ask for. Without a window, it is the last hour.
func (p *Pages) LoadTimeline(r *app.Request) (Timeline, error) {
	return p.loadTimeline(r, windows()[1])
}

func (p *Pages) loadTimeline(r *app.Request, standard window) (Timeline, error) {
	if _, err := r.Loaded(); err != nil {
		return Timeline{}, err
	}
	w, err := windowOf(r, standard)
	if err != nil {
		return Timeline{}, err
	}
	past := Timeline{Query: locks.ParseQuery(r.URL.Query().Get("q"), locks.AboutIntervals), From: r.Now.Add(-w.length),
		window: w}
	all, incompleteBefore, readErr := p.app.IntervalsSince(r, past.From)
	past.IncompleteBefore, past.ReadError = incompleteBefore, p.app.ReadErrorText(readErr)
	past.All, err = matching(r, past.Query, all)
	return past, err
}

// matching returns the intervals of the locks that a query finds because of any hold or wait. The error says that the
// search was stopped.
func matching(r *app.Request, q *locks.Query, all []timeline.Interval) ([]timeline.Interval, error) {
	if len(q.Terms) == 0 {
		return all, nil
	}
	ctx, cancel := locks.WithLimit(r.Context())
	defer cancel()
	found := map[string]bool{}
	for n := range all {
		i := &all[n]
		if found[i.Lock] {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		found[i.Lock] = q.Matches(&locks.Subject{Name: i.Lock, Owner: i.Owner, Host: i.Host, PID: i.PID, Hold: i.ID,
			Taken: i.Begin}, cmp.Or(i.End, r.Now))
	}
	return slices.DeleteFunc(all, func(i timeline.Interval) bool { return !found[i.Lock] }), nil
}

func (v *chart) addWindows(shown window, link func(param string) string) {
	for _, w := range windows() {
		c := Link{Text: w.text}
		if w.param != shown.param {
			c.URL = link(w.param)
		}
		v.Windows = append(v.Windows, c)
	}
}

// lockChart returns the chart of one lock: a lane for each process that held it or waited for it. Short intervals
// before incompleteBefore may be missing. Nil: nothing is known.
func (p *Pages) lockChart(r *app.Request, lock *app.Lock, all []timeline.Interval, incompleteBefore time.Time) *chart {
	if len(all) == 0 {
		return nil
	}
	w, _ := windowOf(r, shortestFitting(all, r.Now))
	past := &Timeline{All: all, From: r.Now.Add(-w.length), IncompleteBefore: incompleteBefore}
	d := &chartBuilder{p: p, at: lock.Viewpoint(r.Viewpoint())}
	v := d.build(r, past, timeline.Options{Lanes: maxProcessLanes, Order: byRecency,
		Lane: func(i *timeline.Interval) string {
			return i.Owner + "\x00" + i.Host + "\x00" + strconv.FormatInt(i.PID, 10)
		}})
	if link := p.app.URLs.Lock(lock.Name, r.URL.Query().Get("hold")); link != "" {
		v.addWindows(w, func(param string) string { return link + "&window=" + param })
	}
	v.JSON = p.app.URLs.To("api/v1/timeline", "q", locks.Exactly("name", lock.Name), "window", w.param)
	return v
}

// shortestFitting returns the shortest window that shows all current intervals or, without any, the latest end.
func shortestFitting(all []timeline.Interval, now time.Time) window {
	var oldest, newest time.Time
	for n := range all {
		if i := &all[n]; i.End.IsZero() {
			oldest = protocol.Earlier(oldest, i.Begin)
		} else if i.End.After(newest) {
			newest = i.End
		}
	}
	since := cmp.Or(oldest, newest)
	for _, w := range windows() {
		if now.Sub(since) < w.length*9/10 {
			return w
		}
	}
	return windows()[3]
}

// byRecency puts who holds the lock first, then who waits, those who came first above, then who held it or waited last.
func byRecency(a, b *timeline.Lane) int {
	rank := func(l *timeline.Lane) int {
		switch {
		case len(l.Holders) > 0:
			return 0
		case l.HasWaiters:
			return 1
		}
		return 2
	}
	if a.HasWaiters && b.HasWaiters && rank(a) == rank(b) {
		return a.First.Compare(b.First)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), b.Last.Compare(a.Last))
}
