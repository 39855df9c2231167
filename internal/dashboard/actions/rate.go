package actions

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// How many actions of one kind there may be in a minute: a person does one at a time, so more is a mistake or a script.
// Tries that do nothing count for the person alone: nobody can use up what is there for all.
const (
	rateEach = 10 // tries of one person
	rateAll  = 30 // that did something, or may have
)

// rate remembers the last minute. The bucket of golang.org/x/time/rate would let twice as many through in the minute
// after a pause.
type rate struct {
	many  string // of the actions, in a sentence
	mu    sync.Mutex
	tries []try // at most rateEach for each person who may do this
	done  []time.Time
}

type try struct {
	who string
	at  time.Time
}

// try counts a try of one person, or refuses it. Refused ones do not count.
func (r *rate) try(who string, now time.Time) error {
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

// take takes one of those that there are for all, or refuses. nothing gives it back: nothing was done.
func (r *rate) take(now time.Time) (nothing func(), err error) {
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
	return &site.Problem{Status: http.StatusTooManyRequests, Code: "too_many", Title: "Too many at once",
		Retry:  time.Minute,
		Detail: "At most 10 " + r.many + " a minute for each person and 30 for all are allowed. Nothing was done."}
}
