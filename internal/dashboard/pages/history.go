package pages

import (
	"errors"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// historyPage is what became of holds.
type historyPage struct {
	site.Page
	Endings []pastView
	Matched int
	Total   int
	Chips   []pastChip
	Unread  string // why etcd could not be asked
	Since   *phrase.Moment
	Next    string
	site.SearchBox
}

// pastChip narrows a history to holds that ended in one way, or that had alerted. Their number is that of the search
// without the chip.
type pastChip struct {
	Word, Icon, URL string
	N               int
	On              bool
}

// pastChips are the ways to narrow a history. The first one widens it again.
func (d *Pages) pastChips(q *locks.Query, all []metadata.Ending) []pastChip {
	var chips []pastChip
	for _, c := range []struct{ word, icon, term string }{
		{"all", "calm", ""}, {"released", "released", "ended:released"},
		{"auto-unlocked", "stale", "ended:auto-unlocked"},
		{"abandoned", "abandoned", "ended:abandoned"}, {"force-unlocked", "bad", "ended:force-unlocked"}, {"had alerted", "alerting", "ended:alerted"},
	} {
		chip := pastChip{Word: c.word, Icon: c.icon,
			On: slices.ContainsFunc(q.Terms, func(t locks.Term) bool { return t.Text == c.term })}
		text := q.With(c.term)
		switch {
		case c.term == "":
			text = locks.ParseQuery(q.Dropping("ended:released", "ended:auto-unlocked", "ended:abandoned", "ended:force-unlocked",
				"ended:alerted")).Text
		case chip.On:
			text = q.Dropping(c.term)
		}
		chip.URL = d.Urls.To("history", "q", text)
		counted := locks.ParseQuery(text)
		if chip.On {
			counted = q
		}
		for i := range all {
			if d.History.Matches(counted, &all[i]) {
				chip.N++
			}
		}
		chips = append(chips, chip)
	}
	return chips
}

// pastView is a hold that is over, or a gap in what is known.
type pastView struct {
	Own         bool // on the page of its lock, whose name would say nothing new
	Gap         bool
	From, To    string // of the gap
	Word        string // released, auto-unlocked, abandoned, force-unlocked
	Name        string
	URL         string
	Owner, Host string
	Purpose     string
	Began       *phrase.Moment
	Ended       *phrase.Moment
	Held        string
	Alerted     bool
	By, Why     string
	token       int64
	at          time.Time
}

func (d *Pages) pastView(e *metadata.Ending, at phrase.Viewpoint) pastView {
	r := metadata.Record{UUID: e.UUID, Token: e.Token}
	v := pastView{Word: locks.EndedWord(e.Ended), Name: text.Clip(e.Lock, site.MaxNameShown),
		URL:   d.Urls.Lock(e.Lock, r.HistoryID()),
		Owner: text.Clip(e.Owner, site.MaxWordShown), Host: locks.HostPID(text.Clip(e.Hostname, site.MaxWordShown),
			e.PID),
		Purpose: text.Clip(e.Purpose, site.MaxLineShown),
		Began:   at.Since(e.LockedAt.Time), Ended: at.Since(e.EndedAt.Time), By: text.Clip(e.By, site.MaxLineShown),
		Why:     text.Clip(e.Why, site.MaxLineShown),
		Alerted: locks.HadAlerted(e), token: e.Token, at: e.EndedAt.Time}
	if !e.LockedAt.IsZero() && !e.EndedAt.IsZero() {
		v.Held = phrase.Duration(e.EndedAt.Sub(e.LockedAt.Time))
	}
	return v
}

func (d *Pages) ServeHistory(r *site.Request) (site.Answer, error) {
	p, err := history.Parse(r.URL.Query(), maxLimit)
	if err != nil {
		return site.Answer{}, site.BadQuery(err.Error())
	}
	all, err := d.History.Endings(r.Context(), r.Now, "")
	v := historyPage{Page: d.Page(r, "history"), Total: len(all), Chips: d.pastChips(p.Query, all),
		SearchBox: d.Search("history", p.Query)}
	v.Page = v.On(v.Page)
	v.Here = "history"
	v.Follows = true
	v.JSON = d.Urls.To("api/v1/history", "q", p.Query.Text)
	if err != nil {
		v.Unread = d.Config.Explain(err)
	}
	list, matched, next, err := d.History.Search(r.Context(), p, all)
	if err != nil {
		return site.Answer{}, err
	}
	v.Matched = matched
	for i := range list {
		v.Endings = append(v.Endings, d.pastView(&list[i], v.Viewpoint))
	}
	gaps, since := d.History.Watched(r.Now, r.Fresh)
	if v.Since = v.Viewpoint.Since(since); len(p.Query.Terms) == 0 {
		v.Endings = withGaps(v.Endings, gaps, p.After.At, next.At)
	}
	if next != (history.Cursor{}) {
		v.Next = d.Urls.To("history", "q", p.Query.Text, "after", next.String())
	}
	body, err := d.Render("history", v)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}

// withGaps puts the gaps between the endings, as far as they belong on a page that goes from one time to another.
func withGaps(list []pastView, gaps []history.Gap, newest, oldest time.Time) []pastView {
	for _, g := range gaps {
		if (newest.IsZero() || g.From.Before(newest)) && (oldest.IsZero() || !g.From.Before(oldest)) {
			list = append(list, pastView{Gap: true, From: phrase.UTC(g.From), To: phrase.TimeOfDay(g.To), at: g.From})
		}
	}
	slices.SortStableFunc(list, func(a, b pastView) int { return b.at.Compare(a.at) })
	return list
}

// lockPast is what a lock's page shows of its history.
type lockPast struct {
	Holds   []pastView
	More    bool
	Typical string // p50
	Longest string // p95
	N       int    // of which
	Unread  string
	URL     string
}

const (
	maxLockPast = 50
	minTypical  = 5 // holds before a percentile says anything
)

// pastOf is the history of one lock.
func (d *Pages) pastOf(r *site.Request, name string, at phrase.Viewpoint) lockPast {
	all, err := d.History.Endings(r.Context(), r.Now, name)
	p := lockPast{URL: d.Urls.To("history", "q", locks.Exactly("name", name))}
	if errors.Is(err, etcdread.ErrSilent) {
		p.Unread = err.Error()
	} else if err != nil {
		p.Unread = d.Config.Explain(err)
	}
	var held []time.Duration
	for i := range all {
		e := &all[i]
		if !e.LockedAt.IsZero() && !e.EndedAt.Before(e.LockedAt.Time) {
			held = append(held, e.EndedAt.Sub(e.LockedAt.Time))
		}
		if p.More = len(p.Holds) == maxLockPast; !p.More {
			view := d.pastView(e, at)
			view.Own = true
			p.Holds = append(p.Holds, view)
		}
	}
	if p.N = len(held); p.N >= minTypical {
		slices.Sort(held)
		p.Typical = phrase.Duration(held[p.N/2])
		p.Longest = phrase.Duration(held[min(p.N-1, p.N*95/100)])
	}
	return p
}
