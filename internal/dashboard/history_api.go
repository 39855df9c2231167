package dashboard

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// pastJSON is a hold that is over.
type pastJSON struct {
	Name     string   `json:"name"`
	NameB64  string   `json:"name_b64,omitempty"`
	Hold     *string  `json:"hold"`
	Token    *string  `json:"token"`
	Owner    *string  `json:"owner"`
	Hostname *string  `json:"hostname"`
	PID      *int64   `json:"pid"`
	Purpose  *string  `json:"purpose"`
	LockedAt *string  `json:"locked_at"`
	LockedIn *float64 `json:"locked_at_in_seconds"`
	AlertAt  *string  `json:"alert_at"`
	AlertIn  *float64 `json:"alert_at_in_seconds"`
	EndedAt  *string  `json:"ended_at"`
	EndedIn  *float64 `json:"ended_at_in_seconds"`
	How      string   `json:"how"` // released, auto_unlocked, forced
	By       *string  `json:"by"`
	Why      *string  `json:"why"`
}

// historyJSON is a page of the history, and what is not known of it.
type historyJSON struct {
	Holds []pastJSON `json:"holds"`
	Gaps  []gapJSON  `json:"gaps"`           // times in which a hold may have begun and ended unseen
	Since *string    `json:"releases_since"` // releases are known from here on
}

type gapJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (d *Dashboard) historyAPI(r *site.Request) (site.Answer, error) {
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
	j := historyJSON{Holds: make([]pastJSON, len(list)), Gaps: []gapJSON{}}
	for i, e := range list {
		h := pastJSON{Name: e.Lock, NameB64: nameB64(e.Lock), Hold: known(e.UUID), Token: known(site.Number(e.Token)),
			Owner: known(e.Owner), Hostname: known(e.Hostname), PID: known(e.PID),
			Purpose: known(e.Purpose), How: e.Ended, By: known(e.By), Why: known(e.Why)}
		h.LockedAt, h.LockedIn = instants(e.LockedAt.Time, now)
		h.AlertAt, h.AlertIn = instants(e.AlertAt.Time, now)
		h.EndedAt, h.EndedIn = instants(e.EndedAt.Time, now)
		j.Holds[i] = h
	}
	gaps, since := d.History.Watched(r.Now, r.Fresh)
	for _, g := range gaps {
		if p.During(g.From) || p.During(g.To) {
			j.Gaps = append(j.Gaps, gapJSON{phrase.ISO(g.From), phrase.ISO(g.To)})
		}
	}
	j.Since, _ = instants(since, now)
	m := newMeta(r, now)
	total := len(all)
	m.Total = &total
	m.Matched = &matched
	m.Next = known(next.String())
	return jsonAnswer(j, m, "")
}

// nameB64 is the name for those to whom it cannot be told as text; empty for a name that is UTF-8.
func nameB64(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(name))
}

// actionJSON is an entry of the audit trail.
type actionJSON struct {
	ID        string   `json:"id"`
	At        *string  `json:"at"`
	AtIn      *float64 `json:"at_in_seconds"`
	Actor     string   `json:"actor"`
	Source    string   `json:"source"`
	Client    *string  `json:"client"`
	UserAgent *string  `json:"user_agent"`
	Action    string   `json:"action"`
	Name      string   `json:"name"`
	NameB64   string   `json:"name_b64,omitempty"`
	Hold      *string  `json:"hold"`
	Token     *string  `json:"token"`
	Revision  string   `json:"revision"` // of the record as the person saw it
	Holder    string   `json:"holder"`
	Reason    string   `json:"reason"`
	Ticket    *string  `json:"ticket"`
	Result    string   `json:"result"`
}

func (d *Dashboard) auditAPI(r *site.Request) (site.Answer, error) {
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
		j := actionJSON{ID: a.ID, Actor: a.Actor, Source: a.Source, Client: known(a.Client),
			UserAgent: known(a.UserAgent), Action: a.Action, Name: a.Lock, NameB64: nameB64(a.Lock),
			Hold:  known(a.UUID),
			Token: known(site.Number(a.Token)), Revision: strconv.FormatInt(a.Revision, 10), Holder: a.Holder,
			Reason: a.Reason, Ticket: known(a.Ticket), Result: a.Result}
		j.At, j.AtIn = instants(a.At.Time, now)
		list = append(list, j)
	}
	m := newMeta(r, now)
	total := len(all)
	m.Total = &total
	m.Matched = &matched
	m.Next = known(next.String())
	return jsonAnswer(list, m, "")
}
