package api

import (
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// historyJSON is a page of the history, and what is not known of it.
type historyJSON struct {
	Holds []lockjson.Ending `json:"holds"`
	Gaps  []gapJSON         `json:"gaps"`           // times in which a hold may have begun and ended unseen
	Since *string           `json:"releases_since"` // releases are known from here on
}

type gapJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (a *API) ServeHistory(r *app.Request) (app.Answer, error) {
	asked, err := parseFilter(r, locks.AboutEndings)
	if err != nil {
		return app.Answer{}, err
	}
	all, err := a.app.History.Endings(r.Context(), r.Now, "")
	if err != nil {
		return app.Answer{}, a.app.ReadError(err)
	}
	found, err := etcdread.SearchEndings(r.Context(), asked, all)
	if err != nil {
		return app.Answer{}, err
	}
	j := historyJSON{Holds: make([]lockjson.Ending, len(found.List))}
	for i := range found.List {
		j.Holds[i] = lockjson.NewEnding(&found.List[i], r.Now)
	}
	j.Gaps, j.Since = watchGaps(r, asked.Covers)
	return pastAnswer(r, j, len(all), found.Matched, found.Next)
}

// watchGaps returns the gaps in the watch of the locks, within the requested time, and since when releases are known.
func watchGaps(r *app.Request, during func(time.Time) bool) (gaps []gapJSON, since *string) {
	gaps = []gapJSON{}
	all, from := r.App.History.WatchGaps(r.Now, r.Fresh)
	for _, g := range all {
		if during(g.From) || during(g.To) {
			gaps = append(gaps, gapJSON{lockjson.Time(g.From), lockjson.Time(g.To)})
		}
	}
	since, _ = lockjson.Instant(from, r.Now)
	return gaps, since
}

// parseFilter reads the parameters of a history. Unlike a page, the API refuses wrong ones.
func parseFilter(r *app.Request, about locks.About) (etcdread.Filter, error) {
	asked, err := etcdread.ParseFilter(r.URL.Query(), about, pages.MaxAPILimit)
	if err == nil {
		err = asked.Query.Err()
	}
	if err != nil {
		return asked, app.BadQuery(err.Error())
	}
	return asked, nil
}

// pastAnswer returns a page of past holds or actions.
func pastAnswer(r *app.Request, data any, total, matched int, next etcdread.Cursor) (app.Answer, error) {
	m := newMeta(r, r.Now)
	m.Total = &total
	m.Matched = &matched
	m.Next = lockjson.OrNull(next.String())
	return m.answer(data)
}

type actionJSON struct {
	ID         string   `json:"id"`
	At         *string  `json:"at"`
	AtIn       *float64 `json:"at_in_seconds"`
	Actor      string   `json:"actor"`
	Source     string   `json:"source"`
	Client     *string  `json:"client"`
	UserAgent  *string  `json:"user_agent"`
	Action     string   `json:"action"`
	Name       string   `json:"name"`
	NameBase64 string   `json:"name_base64,omitempty"`
	UUID       *string  `json:"uuid"`
	Token      *string  `json:"token"`
	Revision   *string  `json:"revision"` // of the record as the person saw it
	Holder     string   `json:"holder"`
	Reason     string   `json:"reason"`
	Ticket     *string  `json:"ticket"`
	Seconds    *int64   `json:"seconds"` // given by an extend, or for which an acknowledgement lasts
	Result     string   `json:"result"`
}

func (a *API) ServeAudit(r *app.Request) (app.Answer, error) {
	asked, err := parseFilter(r, locks.AboutActions)
	if err != nil {
		return app.Answer{}, err
	}
	all, err := a.app.History.Actions(r.Context(), r.Now)
	if err != nil {
		return app.Answer{}, a.app.ReadError(err)
	}
	found, err := etcdread.SearchActions(r.Context(), asked, all)
	if err != nil {
		return app.Answer{}, err
	}
	list := make([]actionJSON, len(found.List))
	for i := range found.List {
		list[i] = newActionJSON(&found.List[i], r.Now)
	}
	return pastAnswer(r, list, len(all), found.Matched, found.Next)
}

func newActionJSON(a *protocol.Action, now time.Time) actionJSON {
	j := actionJSON{
		ID: a.ID, Actor: a.Actor, Source: a.Source, Client: lockjson.OrNull(a.Client),
		UserAgent: lockjson.OrNull(a.UserAgent), Action: string(a.Verb),
		Name: a.Lock, NameBase64: lockjson.Base64(a.Lock), UUID: lockjson.OrNull(a.UUID),
		Token: lockjson.Text(a.Token), Revision: lockjson.Text(a.Revision), Holder: a.Holder,
		Reason: a.Reason, Ticket: lockjson.OrNull(a.Ticket), Seconds: lockjson.OrNull(a.Seconds), Result: a.Result,
	}
	j.At, j.AtIn = lockjson.Instant(a.At.Time, now)
	return j
}
