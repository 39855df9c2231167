package api

import (
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/lockjson"
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

func (d *API) ServeHistory(r *site.Request) (site.Answer, error) {
	p, err := history.Parse(r.URL.Query(), pages.MaxAPILimit)
	if err == nil {
		err = p.Sound()
	}
	if err != nil {
		return site.Answer{}, site.BadQuery(err.Error())
	}
	all, err := d.History.Endings(r.Context(), r.Now, "")
	if err != nil {
		return site.Answer{}, d.NotRead(err)
	}
	now := r.Now
	list, matched, next, err := d.History.Search(r.Context(), p, all)
	if err != nil {
		return site.Answer{}, err
	}
	j := historyJSON{Holds: make([]lockjson.Ending, len(list)), Gaps: []gapJSON{}}
	for i, e := range list {
		j.Holds[i] = lockjson.NewEnding(&e, now)
	}
	gaps, since := d.History.Watched(r.Now, r.Fresh)
	for _, g := range gaps {
		if p.During(g.From) || p.During(g.To) {
			j.Gaps = append(j.Gaps, gapJSON{lockjson.Time(g.From), lockjson.Time(g.To)})
		}
	}
	j.Since, _ = lockjson.Instant(since, now)
	m := newMeta(r, now)
	total := len(all)
	m.Total = &total
	m.Matched = &matched
	m.Next = lockjson.Known(next.String())
	return jsonAnswer(j, m, "")
}

// actionJSON is an entry of the audit trail.
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
	Result     string   `json:"result"`
}

func (d *API) ServeAudit(r *site.Request) (site.Answer, error) {
	p, err := history.Parse(r.URL.Query(), pages.MaxAPILimit)
	if err == nil {
		err = p.Sound()
	}
	if err != nil {
		return site.Answer{}, site.BadQuery(err.Error())
	}
	all, err := d.History.Actions(r.Context(), r.Now)
	if err != nil {
		return site.Answer{}, d.NotRead(err)
	}
	now := r.Now
	list := []actionJSON{}
	found, matched, next, err := d.History.SearchActions(r.Context(), p, all)
	if err != nil {
		return site.Answer{}, err
	}
	for _, a := range found {
		j := actionJSON{
			ID: a.ID, Actor: a.Actor, Source: a.Source, Client: lockjson.Known(a.Client),
			UserAgent: lockjson.Known(a.UserAgent), Action: a.Action,
			Name: a.Lock, NameBase64: lockjson.Base64(a.Lock), UUID: lockjson.Known(a.UUID),
			Token: lockjson.Number(a.Token), Revision: lockjson.Number(a.Revision), Holder: a.Holder,
			Reason: a.Reason, Ticket: lockjson.Known(a.Ticket), Result: a.Result,
		}
		j.At, j.AtIn = lockjson.Instant(a.At.Time, now)
		list = append(list, j)
	}
	m := newMeta(r, now)
	total := len(all)
	m.Total = &total
	m.Matched = &matched
	m.Next = lockjson.Known(next.String())
	return jsonAnswer(list, m, "")
}
