// Package actions is what operators do to the holds of others: end them by force, ask their holders to finish, give
// them more time, acknowledge them, end the lock delay after them. People confirm in a form, programs call the API, and
// both get the outcome.
package actions

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Operation is an operator action: form, API endpoint, checks, wording.
type Operation struct {
	*Handler
	protocol.VerbInfo
	wording
	rate    rate
	results results
	// show returns the form, with what was typed before and what is wrong with it.
	show func(r *app.Request, typed Request, name string, wrong *FieldError) (app.Answer, error)
	// perform performs the action on the hold or lock delay that the person saw.
	perform func(r *app.Request, wanted Request) (protocol.Action, error)
	// after returns the URL of the page that shows the result.
	after func(r *app.Request, wanted Request) string
}

// wording has the texts about a verb.
type wording struct {
	verb       protocol.Verb
	subject    string // the action as the beginning of a sentence: "Force unlock" is switched off
	plural     string // several actions, in a sentence
	done       string // the result in the API
	undone     string // the same of the verb that undoes it
	command    string // of mutexctl; empty if it is the verb
	lengthFlag string // of that command, for the duration
	did        string // what another operator has done, after "has"
	moved      string // what happened if the hold has changed but not ended; empty: unknown
	metric     string // counts requests, by result
	help       string // of the metric
	form       formWords
}

// formWords has the texts of a form of an action that does not free the lock.
type formWords struct {
	Title   string // before the name of the lock
	Tab     string // the same in the title of the tab
	Effects []string
	HowLong string // the question for the duration; empty if there is none
	Why     string // the question for the reason
	Do      string // the button
}

// wordings returns the verbs that have a form and an API endpoint, in the order in which they are listed.
func wordings() []wording {
	return []wording{
		{verb: protocol.VerbForceUnlock, plural: "force unlocks", done: "unlocked",
			subject: "Force unlock",
			metric:  "mutexdash_force_unlocks_total", help: "Requested force unlocks, by result.",
		},
		{verb: protocol.VerbAsk, plural: "requests to finish", done: "asked",
			subject: "Asking holders to finish",
			did:     "asked the holder to finish",
			metric:  "mutexdash_asks_total", help: "Requests to holders to finish, by result.",
			form: formWords{Title: "Ask the holder to finish", Tab: "ask to finish",
				Effects: []string{
					"The request is written into the record. The holder keeps the lock: it sees the request if its " +
						"library watches the lock, and finishes early if it can.",
					"The page of the lock shows whether the holder has reported since.",
				},
				Why: "Why? The holder reads it, and the audit trail keeps it.", Do: "Ask to finish"},
		},
		{verb: protocol.VerbExtend, plural: "extensions", done: "extended", lengthFlag: "by",
			subject: "Giving more time",
			did:     "given it more time",
			moved:   "the lock has just been extended. Check whether it still needs more time",
			metric:  "mutexdash_extensions_total", help: "Requests to give holders more time, by result.",
			form: formWords{Title: "Give more time to the holder of", Tab: "more time for",
				Effects: []string{
					"Alert and auto-unlock are postponed by this much, counted from now if they have passed. A lock " +
						"that alerts stops alerting until then.",
					"This cannot be undone; waiters may wait that much longer.",
				},
				HowLong: "How much time?", Why: "Why? The record and the audit trail keep it.", Do: "Give more time"},
		},
		{verb: protocol.VerbAcknowledge, plural: "acknowledgements", done: "acknowledged",
			undone: "withdrawn", command: "ack", lengthFlag: "for",
			subject: "Acknowledging locks",
			did:     "acknowledged the lock", moved: "another operator has just acknowledged the lock",
			metric: "mutexdash_acknowledgements_total",
			help:   "Requests to acknowledge locks, and to withdraw that, by result.",
			form: formWords{Title: "Acknowledge", Tab: "acknowledge",
				Effects: []string{
					"Everyone sees your name, your note and until when: here, on the command line, and in alerts " +
						"about the lock.",
					"It silences no alert and changes nothing for the holder.",
					"It ends when the time is up, or when this hold ends.",
				},
				HowLong: "For how long?", Why: "What are you doing about it? (optional)", Do: "Acknowledge"},
		},
		{verb: protocol.VerbEndDelay, plural: "ends of lock delays", done: "ended",
			command: app.EndDelay, subject: "Ending lock delays",
			metric: "mutexdash_delay_ends_total", help: "Requests to end lock delays, by result.",
		},
	}
}

func newOperations(h *Handler) []*Operation {
	var all []*Operation
	for _, w := range wordings() {
		o := &Operation{Handler: h, VerbInfo: w.verb.Info(), wording: w, rate: rate{plural: w.plural}}
		o.results = h.newResults(w.metric, w.help)
		o.show = o.showHold
		o.perform = o.performOnHold
		o.after = o.afterHold
		if o.verb == protocol.VerbEndDelay {
			o.show = o.showDelay
			o.perform = o.performOnDelay
			o.after = o.afterDelay
		}
		all = append(all, o)
	}
	return all
}

// Page returns the path of the form, below the prefix.
func (o *Operation) Page() string { return pages.ActionPage(o.verb) }

// API returns the path of the API endpoint, below the prefix.
func (o *Operation) API() string { return "api/v1/lock/" + string(o.verb) }

func (o *Operation) mutexctl() string { return cmp.Or(o.wording.command, string(o.verb)) }

func (o *Operation) permission() access.Permission { return access.Permission(o.Permission) }

// verbOf returns the verb of the operation, or the one that undoes it.
func (o *Operation) verbOf(wanted Request) protocol.Verb {
	if wanted.Undo {
		return o.Undo
	}
	return o.verb
}

// Handler serves the actions of operators, as forms and as an API.
type Handler struct {
	metrics
	Operations []*Operation
	app        *app.App
	pages      *pages.Pages
	api        *api.API
}

// New returns the handler of the actions. Conflicts show programs the lock as the API does.
func New(s *app.App, p *pages.Pages, a *api.API) *Handler {
	h := &Handler{metrics: newMetrics(), app: s, pages: p, api: a}
	h.Operations = newOperations(h)
	return h
}

// RecordRefusal counts and logs a request that was refused before its body was read.
func (o *Operation) RecordRefusal(r *app.Request, err error) {
	wanted := Request{Hold: r.URL.Query().Get("hold")}
	wanted.Name, _ = app.NameOf(r) // the API names it in the body
	o.record(r, wanted, o.newAction(r, wanted, ""), err)
}

// How many actions of one kind there may be in a minute: a person does one at a time, so more is a mistake or a script.
// Attempts without effect count for the caller alone, so that no caller can use up the limit of all.
const (
	rateEach = 10 // tries of one person
	rateAll  = 30 // that did something, or may have
)

// rate remembers the last minute. The bucket of golang.org/x/time/rate would let twice as many through in the minute
// after a pause.
type rate struct {
	plural string // of the actions, in a sentence
	mu     sync.Mutex
	tries  []try // at most rateEach for each person who may do this
	done   []time.Time
}

type try struct {
	who string
	at  time.Time
}

// countTry counts an attempt of one person, or refuses it. Refused attempts do not count.
func (r *rate) countTry(who string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries = slices.DeleteFunc(r.tries, func(t try) bool { return now.Sub(t.at) >= time.Minute })
	own := 0
	for _, t := range r.tries {
		if t.who == who {
			own++
		}
	}
	if own >= rateEach {
		return r.tooMany()
	}
	r.tries = append(r.tries, try{who, now})
	return nil
}

// reserve counts an action against the limit of all, or refuses it. giveBack undoes that, if nothing was done.
func (r *rate) reserve(now time.Time) (giveBack func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = slices.DeleteFunc(r.done, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
	if len(r.done) >= rateAll {
		return nil, r.tooMany()
	}
	r.done = append(r.done, now)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.done, now); i >= 0 {
			r.done = slices.Delete(r.done, i, i+1)
		}
	}, nil
}

func (r *rate) tooMany() error {
	return &app.HTTPError{Status: http.StatusTooManyRequests, Code: "too_many", Title: "Too many at once",
		Retry:  time.Minute,
		Detail: "At most 10 " + r.plural + " a minute for each person and 30 for all are allowed. Nothing was done."}
}
