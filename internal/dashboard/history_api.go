package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/clustermutex/unlocker/internal/lockjson"
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

func (d *Dashboard) historyAPI(r *http.Request) (answer, error) {
	p, err := parsePast(r, maxAPILimit)
	if err == nil {
		err = p.sound()
	}
	if err != nil {
		return answer{}, err
	}
	all, err := d.endings(r.Context(), "")
	if err != nil {
		return answer{}, d.unread(err)
	}
	now := d.config.Now()
	list, matched, next, err := d.found(r.Context(), p, all)
	if err != nil {
		return answer{}, err
	}
	j := historyJSON{Holds: make([]lockjson.Ending, len(list)), Gaps: []gapJSON{}}
	for i, e := range list {
		j.Holds[i] = lockjson.NewEnding(&e, now)
	}
	gaps, since := d.watched()
	for _, g := range gaps {
		if p.during(g.From) || p.during(g.To) {
			j.Gaps = append(j.Gaps, gapJSON{lockjson.Time(g.From), lockjson.Time(g.To)})
		}
	}
	j.Since, _ = lockjson.Instant(since, now)
	m := d.meta(now)
	total := len(all)
	m.Total = &total
	m.Matched = &matched
	m.Next = lockjson.Known(next.String())
	return jsonAnswer(j, m, "")
}

// sound refuses a query with a term that was left out: programs are told.
func (p pastRequest) sound() error {
	for _, wrong := range p.query.problems {
		return &problem{Status: http.StatusBadRequest, Code: "bad_query", Title: "Bad query",
			Detail: plain(wrong.Term) + ": " + plain(wrong.Text) + "."}
	}
	return nil
}

// unread says that etcd could not be asked.
func (d *Dashboard) unread(err error) error {
	return &problem{Status: http.StatusServiceUnavailable, Code: "stale", Title: "etcd did not answer",
		Detail: "etcd could not be asked: " + d.config.Explain(err) + ".",
		Retry:  pastEvery}
}

// actions reads the audit trail.
func (d *Dashboard) actions(ctx context.Context) ([]protocol.Action, error) {
	all, err := d.past.actions.get(ctx, d.config.Now(), d.config.Audit)
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b protocol.Action) int {
		return cmp.Or(b.At.Compare(a.At.Time),
			cmp.Compare(b.Token, a.Token))
	})
	return all, err
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

func (d *Dashboard) auditAPI(r *http.Request) (answer, error) {
	p, err := parsePast(r, maxAPILimit)
	if err == nil {
		err = p.sound()
	}
	if err != nil {
		return answer{}, err
	}
	all, err := d.actions(r.Context())
	if err != nil {
		return answer{}, d.unread(err)
	}
	now := d.config.Now()
	list := []actionJSON{}
	found, matched, next, err := d.foundActions(r.Context(), p, all)
	if err != nil {
		return answer{}, err
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
	m := d.meta(now)
	total := len(all)
	m.Total = &total
	m.Matched = &matched
	m.Next = lockjson.Known(next.String())
	return jsonAnswer(list, m, "")
}
