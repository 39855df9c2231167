package pages

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// pastPage is a page of a list of the past: of ended holds, or of actions.
type pastPage struct {
	app.SearchPage
	Matched int
	Total   int
	Next    string
}

func newPastPage[T any](r *app.Request, name string, asked etcdread.Filter, all []T,
	found etcdread.FoundPage[T]) pastPage {
	v := pastPage{SearchPage: r.App.SearchPage(r, name, asked.Query), Total: len(all), Matched: found.Matched}
	v.JSON = r.App.URLs.To("api/v1/"+name, "q", asked.Query.Text)
	if found.Next != (etcdread.Cursor{}) {
		v.Next = r.App.URLs.To(name, "q", asked.Query.Text, "after", found.Next.String())
	}
	return v
}

type historyPage struct {
	pastPage
	Endings   []endingView
	Chips     []endingChip
	ReadError string // why etcd could not be read
	Since     *app.TimeText
}

// endingChip narrows a history to holds that ended in one way, or that had alerted. Their number is that of the search
// without the chip.
type endingChip struct {
	Word, URL string
	N         int
	On        bool
	term      string // that finds them; empty: all
}

// endingChips returns the chips that narrow a history. The first one widens it again.
func (p *Pages) endingChips(q *locks.Query, all []metadata.Ending) []endingChip {
	chips := []endingChip{{Word: "all"}}
	for _, e := range metadata.Endings() {
		chips = append(chips, endingChip{Word: e.Word, term: locks.FieldTerm("ended", e.Word)})
	}
	chips = append(chips, endingChip{Word: "had alerted", term: locks.FieldTerm("ended", locks.Alerted)})
	var terms []string
	for _, chip := range chips {
		terms = append(terms, chip.term)
	}
	for n := range chips {
		chip := &chips[n]
		chip.On = slices.ContainsFunc(q.Terms, func(t locks.Term) bool { return t.Text == chip.term })
		text := q.With(chip.term)
		switch {
		case chip.term == "":
			text = q.Dropping(terms...)
		case chip.On:
			text = q.Dropping(chip.term)
		}
		chip.URL = p.app.URLs.To("history", "q", text)
		counted := locks.ParseQuery(text, locks.AboutEndings)
		if chip.On {
			counted = q
		}
		for i := range all {
			if etcdread.EndingMatches(&all[i], counted) {
				chip.N++
			}
		}
	}
	return chips
}

// endingView is an ended hold in the history, or a gap in the watch.
type endingView struct {
	Gap         *timeline.Span
	Word        string // how it ended
	Name        string
	URL         string
	Owner, Host string
	Purpose     string
	Began       *app.TimeText
	Ended       *app.TimeText
	Held        string
	Alerted     bool
	By, Why     string
	Done        []string     // what others than its holder did to it, in sentences
	Equal       []endingView // earlier holds of the lock that ended alike, newest first
	lock        string
	at          time.Time
}

func (p *Pages) endingView(e *metadata.Ending, at app.Viewpoint) endingView {
	v := endingView{Word: locks.EndedWord(e.Cause), Name: text.Clip(e.Name, app.MaxNameShown),
		URL:   p.app.URLs.Lock(e.Name, e.HistoryID()),
		Owner: text.Clip(e.Owner, app.MaxWordShown), Host: app.HostPID(e.Hostname, e.PID),
		Purpose: text.Clip(e.Purpose, app.MaxLineShown),
		Began:   at.Since(e.LockedAt.Time), Ended: at.Since(e.EndedAt.Time), By: text.Clip(e.By, app.MaxLineShown),
		Why:     text.Clip(e.Reason, app.MaxLineShown),
		Done:    protocol.DescribePastActions(e, at.Now),
		Alerted: locks.HadAlerted(e), lock: e.Name, at: e.EndedAt.Time}
	if began := cmp.Or(e.LockedAt.Time, e.SeenAt); !began.IsZero() && !e.EndedAt.IsZero() {
		v.Held = text.Duration(e.EndedAt.Sub(began))
		if e.LockedAt.IsZero() {
			v.Held = "at least " + v.Held
		}
	}
	return v
}

func (p *Pages) ServeHistory(r *app.Request) (app.Answer, error) {
	asked, err := etcdread.ParseFilter(r.URL.Query(), locks.AboutEndings, maxLimit)
	if err != nil {
		return app.Answer{}, app.BadQuery(err.Error())
	}
	all, readErr := p.app.History.Endings(r.Context(), r.Now, "")
	found, err := etcdread.SearchEndings(r.Context(), asked, all)
	if err != nil {
		return app.Answer{}, err
	}
	v := historyPage{pastPage: newPastPage(r, "history", asked, all, found), ReadError: p.app.ReadErrorText(readErr),
		Chips: p.endingChips(asked.Query, all)}
	for i := range found.List {
		v.Endings = append(v.Endings, p.endingView(&found.List[i], r.Viewpoint()))
	}
	gaps, since := p.app.History.WatchGaps(r.Now, r.Fresh)
	v.Since = v.Viewpoint.Since(since)
	if len(asked.Query.Terms) == 0 {
		v.Endings = withGaps(v.Endings, gaps, asked.After.At, found.Next.At)
	}
	v.Endings = foldEqual(v.Endings)
	return p.app.Render("history", v)
}

// withGaps puts the gaps between the endings, as far as they belong on a page that goes from one time to another.
func withGaps(list []endingView, gaps []timeline.Span, newest, oldest time.Time) []endingView {
	for _, g := range gaps {
		if (newest.IsZero() || g.From.Before(newest)) && (oldest.IsZero() || !g.From.Before(oldest)) {
			list = append(list, endingView{Gap: &g, at: g.From})
		}
	}
	slices.SortStableFunc(list, func(a, b endingView) int { return b.at.Compare(a.at) })
	return list
}

// foldEqual folds each ending into the one above of the same lock, if they are equal and no gap is between them.
func foldEqual(list []endingView) (folded []endingView) {
	latest := map[string]int{}
	for _, e := range list {
		n, known := latest[e.lock]
		switch {
		case e.Gap != nil:
			clear(latest)
		case known && folded[n].equals(&e):
			folded[n].Equal = append(folded[n].Equal, e)
			continue
		default:
			latest[e.lock] = len(folded)
		}
		folded = append(folded, e)
	}
	return folded
}

// equals reports whether two holds of a lock ended alike, and nothing else happened to them.
func (v *endingView) equals(o *endingView) bool {
	return v.Word == o.Word && v.Owner == o.Owner && v.Alerted == o.Alerted && v.By == o.By && v.Why == o.Why &&
		len(v.Done) == 0 && len(o.Done) == 0
}

// First returns the earliest of the holds that are shown as one.
func (v *endingView) First() *endingView {
	if len(v.Equal) == 0 {
		return v
	}
	return &v.Equal[len(v.Equal)-1]
}

type auditPage struct {
	pastPage
	Actions []actionView
}

type actionView struct {
	At             *app.TimeText
	Actor          string
	Source, Client string
	Agent          string // the person's program
	What           string
	Name, URL      string
	Holder         string
	Reason, Ticket string
	Result         string
}

func (p *Pages) ServeAudit(r *app.Request) (app.Answer, error) {
	asked, err := etcdread.ParseFilter(r.URL.Query(), locks.AboutActions, maxLimit)
	if err != nil {
		return app.Answer{}, app.BadQuery(err.Error())
	}
	all, err := p.app.History.Actions(r.Context(), r.Now)
	if err != nil {
		return app.Answer{}, p.app.ReadError(err)
	}
	found, err := etcdread.SearchActions(r.Context(), asked, all)
	if err != nil {
		return app.Answer{}, err
	}
	v := auditPage{pastPage: newPastPage(r, "audit", asked, all, found)}
	for i := range found.List {
		a := &found.List[i]
		hold := metadata.Record{UUID: a.UUID, Token: a.Token}
		v.Actions = append(v.Actions, actionView{At: v.Since(a.At.Time), Actor: text.Clip(a.Actor, app.MaxLineShown),
			Source: a.Source, Client: text.Clip(a.Client, app.MaxWordShown),
			Agent:  text.Clip(a.UserAgent, app.MaxWordShown),
			What:   actionWords(a),
			Name:   text.Clip(a.Lock, app.MaxNameShown),
			URL:    p.app.URLs.Lock(a.Lock, hold.HistoryID()),
			Holder: text.Clip(a.Holder, 2*app.MaxLineShown),
			Reason: text.Clip(a.Reason, 4*app.MaxReason), Ticket: text.Clip(a.Ticket, 4*app.MaxTicket),
			Result: a.Result})
	}
	return p.app.Render("audit", v)
}
