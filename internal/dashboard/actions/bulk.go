package actions

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Limits of one form for many holds.
const (
	maxBulkHolds = 1000             // the body of a larger form would be refused
	bulkTimeout  = 20 * time.Second // for which holds are ended, so that the answer still arrives
	tooMany      = "One form ends at most 1,000 holds. Narrow the search."
)

// bulkPage asks a person whether all holds that a search finds shall be ended by force, or says what came of that.
type bulkPage struct {
	app.Page
	Search    string
	query     *locks.Query
	Holds     []*locks.Row
	Alive     int // left out
	Forbidden int // left out: the caller lacks the permission for them
	Done      *bulkResult
	confirmForm
}

type bulkResult struct {
	All, Ended, Spared int
	Remaining          []remainingHold
}

// Failed returns how many holds may still be there, those included for which there was no time.
func (d *bulkResult) Failed() int { return d.All - d.Ended - d.Spared }

type remainingHold struct {
	*locks.Row
	Why string
}

// isBulk reports whether the request is about all holds that a search finds.
func (o *Operation) isBulk(r *app.Request) bool { return o.FreesLock && r.URL.Query().Has("q") }

// bulkForm returns the form for all holds that the search finds, with what was typed before and what is wrong with it.
func (o *Operation) bulkForm(r *app.Request, typed Request, number string, wrong *FieldError) (app.Answer, error) {
	evenAlive := r.URL.Query().Get("even_alive")
	v, err := o.newBulkPage(r)
	if err != nil {
		return app.Answer{}, err
	}
	found, err := r.Snapshot().Search(r.Context(), v.query, locks.Order{By: locks.MostUrgent}, r.Now)
	if err != nil {
		return app.Answer{}, err
	}
	chosen := locks.ChooseBulkHolds(found.Rows, evenAlive != "", r.Now)
	v.Alive = chosen.LeftOut
	var seen []string
	for _, row := range chosen.Rows {
		if !r.MayDo(o.verb, row.Owner) {
			v.Forbidden++
			continue
		}
		seen = append(seen, row.HoldID()+"."+strconv.FormatInt(row.Revision, 10))
		v.Holds = append(v.Holds, row)
	}
	if len(seen) > maxBulkHolds {
		return app.Answer{}, badSearch(tooMany)
	}
	v.confirmForm = confirmForm{Ask: "Type the number of these holds", Shown: strconv.Itoa(len(seen)),
		Hold: strings.Join(seen, " "), Action: o.app.URLs.To(o.Page(), "q", v.Search, "even_alive", evenAlive),
		Cancel: v.Cancel, Do: "Force unlock " + text.Count(len(seen), "hold"), Kept: "the history"}
	o.fill(&v.confirmForm, typed, number, wrong)
	a, err := o.app.Render("unlock-found", v)
	return asForm(a, wrong), err
}

// newBulkPage returns the page about what the search finds; an error if the search is not one.
func (o *Operation) newBulkPage(r *app.Request) (bulkPage, error) {
	q := locks.ParseQuery(r.URL.Query().Get("q"), locks.AboutLocks)
	v := bulkPage{Page: o.app.Page(r, "force unlock "+q.Text), Search: q.Text, query: q}
	v.NavEntry = "list"
	v.Query = app.BoxText(q.Text)
	v.Cancel = o.app.URLs.To("", "q", q.Text)
	switch err := q.Err(); {
	case err != nil:
		return v, badSearch("The search is not understood as a whole: " + err.Error() + ".")
	case len(q.Terms) == 0:
		return v, badSearch("Search first: this ends only what a search finds.")
	}
	return v, nil
}

func badSearch(detail string) error {
	return &app.HTTPError{Status: http.StatusUnprocessableEntity, Code: "bad_search", Title: "Not done",
		Detail: detail + " Nothing was done."}
}

// postBulk ends the holds that the form showed.
func (o *Operation) postBulk(r *app.Request) (app.Answer, error) {
	var form url.Values
	v, err := o.newBulkPage(r)
	if err == nil {
		form, err = readValues(r)
	}
	typed := Request{Reason: form.Get("reason"), Ticket: form.Get("ticket"), counted: true}
	seen := strings.Fields(form.Get("hold"))
	wanted := typed
	if err == nil {
		err = o.checkBulk(r, &wanted, form.Get("typed"), len(seen))
	}
	if err != nil {
		o.record(r, wanted, o.newAction(r, wanted, ""), err)
		return o.showAgain(r, typed, form.Get("typed"), err)
	}
	v.Done = o.endAll(r, wanted, seen)
	return o.app.Render("unlock-found", v)
}

// checkBulk checks a request to end n holds, as far as that does not depend on the holds. It counts as one action.
func (o *Operation) checkBulk(r *app.Request, wanted *Request, number string, n int) error {
	err := o.checkCaller(r)
	switch {
	case err != nil:
		return err
	case n == 0:
		return badSearch("The form does not say which holds it is about.")
	case n > maxBulkHolds:
		return badSearch(tooMany)
	case number != strconv.Itoa(n):
		return &FieldError{"typed", "That is not the number of the holds that the form showed."}
	}
	if err := o.check(wanted); err != nil {
		return err
	}
	_, err = o.rate.reserve(r.Now)
	return err
}

// endAll ends the holds one after the other, each in a transaction that also records it. It spares those that have
// changed since they were shown. It stops when it takes too long.
func (o *Operation) endAll(r *app.Request, wanted Request, seen []string) *bulkResult {
	limit, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), bulkTimeout)
	defer cancel()
	holds := map[string]*locks.Row{}
	for _, row := range r.Snapshot().Rows {
		holds[row.HoldID()] = row
	}
	done := &bulkResult{All: len(seen)}
	for _, one := range seen {
		if limit.Err() != nil {
			break
		}
		id, revision, _ := strings.Cut(one, ".")
		row := holds[id]
		if row == nil {
			done.Spared++
			continue
		}
		wanted.Revision, _ = strconv.ParseInt(revision, 10, 64)
		o.count(done, row, o.endShown(r, wanted, row))
	}
	return done
}

// endShown ends the hold in the row, unless its record was written after wanted.Revision.
func (o *Operation) endShown(r *app.Request, wanted Request, row *locks.Row) error {
	r = r.With(context.WithoutCancel(r.Context())) // closing the tab now must not change the outcome
	wanted.Name = row.Name
	wanted.Hold = row.UUID
	wanted.Token = row.Token
	action := o.newAction(r, wanted, holderLine(r, row.Record))
	err := o.app.AuthorizeFor(r.Caller, o.permission(), row.Owner)
	switch {
	case err != nil:
	case row.Revision != wanted.Revision:
		err = o.holdMayRemain(wanted, true, metadata.ErrChanged)
	default:
		on := o.target(r, row.Record)
		on.IfUnchanged = true
		err = o.sendToHold(r, wanted, on, action)
	}
	o.record(r, wanted, action, err)
	return err
}

func (o *Operation) count(done *bulkResult, row *locks.Row, err error) {
	if err == nil {
		done.Ended++
		return
	}
	why := app.ErrInternal
	if errors.As(err, &why); why.Code == "hold_changed" {
		done.Spared++
	}
	done.Remaining = append(done.Remaining, remainingHold{row, why.Detail})
}
