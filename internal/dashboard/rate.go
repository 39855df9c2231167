package dashboard

import (
	"net/http"
	"sync"
	"time"
)

// How many force unlocks there may be in a minute: a person does one at a time, so more is a mistake or a script.
const (
	rateEach = 10
	rateAll  = 30
)

// rate remembers the tries of the last minute, of which there are never more than rateAll.
type rate struct {
	mu    sync.Mutex
	tries []try
}

type try struct {
	who string
	at  time.Time
}

// take counts a try, or refuses it. Refused ones do not count.
func (r *rate) take(who string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.tries) > 0 && now.Sub(r.tries[0].at) >= time.Minute {
		r.tries = r.tries[1:]
	}
	own := 0
	for _, t := range r.tries {
		if t.who == who {
			own++
		}
	}
	if own < rateEach && len(r.tries) < rateAll {
		r.tries = append(r.tries, try{who, now})
		return nil
	}
	return &problem{Status: http.StatusTooManyRequests, Code: "too_many", Title: "Too many at once", Retry: time.Minute,
		Detail: "At most 10 force unlocks a minute for each person and 30 for all are allowed. Nothing was done."}
}
