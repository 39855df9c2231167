package dashboard

import (
	"errors"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// historyPage is what became of holds.
type historyPage struct {
	page
	Endings []pastView
	Matched int
	Total   int
	Chips   []pastChip
	Unread  string // why etcd could not be asked
	Since   *phrase.Moment
	Next    string
	searched
}

// pastChip narrows a history to holds that ended in one way, or that had alerted. Their number is that of the search
// without the chip.
type pastChip struct {
	Word, Icon, URL string
	N               int
	On              bool
}

// pastChips are the ways to narrow a history. The first one widens it again.
func (d *Dashboard) pastChips(q *locks.Query, all []metadata.Ending) []pastChip {
	var chips []pastChip
	for _, c := range []struct{ word, icon, term string }{
		{"all", "calm", ""}, {"released", "released", "ended:released"},
		{"auto-unlocked", "stale", "ended:auto-unlocked"},
		{"force-unlocked", "bad", "ended:force-unlocked"}, {"had alerted", "alerting", "ended:alerted"},
	} {
		chip := pastChip{Word: c.word, Icon: c.icon,
			On: slices.ContainsFunc(q.Terms, func(t locks.Term) bool { return t.Text == c.term })}
		text := q.With(c.term)
		switch {
		case c.term == "":
			text = locks.ParseQuery(q.Dropping("ended:released", "ended:auto-unlocked", "ended:force-unlocked",
				"ended:alerted")).Text
		case chip.On:
			text = q.Dropping(c.term)
		}
		chip.URL = d.urls.To("history", "q", text)
		counted := locks.ParseQuery(text)
		if chip.On {
			counted = q
		}
		for i := range all {
			if d.past.Matches(counted, &all[i]) {
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
	Word        string // released, auto-unlocked, force-unlocked
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

func (d *Dashboard) pastView(e *metadata.Ending, at phrase.Viewpoint) pastView {
	r := metadata.Record{UUID: e.UUID, Token: e.Token}
	v := pastView{Word: locks.EndedWord(e.Ended), Name: text.Clip(e.Lock, maxNameShown), URL: d.urls.Lock(e.Lock, r.HistoryID()),
		Owner: text.Clip(e.Owner, maxWordShown), Host: locks.HostPID(text.Clip(e.Hostname, maxWordShown), e.PID),
		Purpose: text.Clip(e.Purpose, maxLineShown),
		Began:   at.Since(e.LockedAt.Time), Ended: at.Since(e.EndedAt.Time), By: text.Clip(e.By, maxLineShown),
		Why:     text.Clip(e.Why, maxLineShown),
		Alerted: locks.HadAlerted(e), token: e.Token, at: e.EndedAt.Time}
	if !e.LockedAt.IsZero() && !e.EndedAt.IsZero() {
		v.Held = phrase.Duration(e.EndedAt.Sub(e.LockedAt.Time))
	}
	return v
}

func (d *Dashboard) history(r *request) (answer, error) {
	p, err := history.Parse(r.URL.Query(), maxLimit)
	if err != nil {
		return answer{}, badQuery(err.Error())
	}
	all, err := d.past.Endings(r.Context(), r.now, "")
	v := historyPage{page: d.page(r, "history"), Total: len(all), Chips: d.pastChips(p.Query, all),
		searched: d.searches("history", p.Query)}
	v.page = v.searching(v.page)
	v.Here = "history"
	v.Follows = true
	v.JSON = d.urls.To("api/v1/history", "q", p.Query.Text)
	if err != nil {
		v.Unread = d.config.Explain(err)
	}
	list, matched, next, err := d.past.Search(r.Context(), p, all)
	if err != nil {
		return answer{}, err
	}
	v.Matched = matched
	for i := range list {
		v.Endings = append(v.Endings, d.pastView(&list[i], v.Viewpoint))
	}
	gaps, since := d.past.Watched(r.now, r.fresh)
	if v.Since = v.Viewpoint.Since(since); len(p.Query.Terms) == 0 {
		v.Endings = withGaps(v.Endings, gaps, p.After.At, next.At)
	}
	if next != (history.Cursor{}) {
		v.Next = d.urls.To("history", "q", p.Query.Text, "after", next.String())
	}
	body, err := d.render("history", v)
	return answer{Type: typeHTML, Body: body}, err
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
func (d *Dashboard) pastOf(r *request, name string, at phrase.Viewpoint) lockPast {
	all, err := d.past.Endings(r.Context(), r.now, name)
	p := lockPast{URL: d.urls.To("history", "q", locks.Exactly("name", name))}
	if errors.Is(err, etcdread.ErrSilent) {
		p.Unread = err.Error()
	} else if err != nil {
		p.Unread = d.config.Explain(err)
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
