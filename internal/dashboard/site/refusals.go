package site

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// How many refusals of one caller the log has in a minute, and how many callers are told apart. All refusals are
// counted by metrics.
const (
	linesEach    = 10
	quietCallers = 1000
)

// Refusals cost nothing to cause, and are kept from filling the log. Callers without a name are one.
type Refusals struct {
	mu    sync.Mutex
	since time.Time
	lines map[string]int // by caller
}

// Take reports whether a refusal of this caller is logged, and how many were left out before, in the last minute that
// had any.
func (r *Refusals) Take(who string, now time.Time) (logged bool, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= time.Minute || now.Before(r.since) {
		for _, n := range r.lines {
			leftOut += max(0, n-linesEach)
		}
		r.since = now
		r.lines = map[string]int{}
	}
	if _, known := r.lines[who]; !known && len(r.lines) >= quietCallers {
		who = ""
	}
	r.lines[who]++
	return r.lines[who] <= linesEach, leftOut
}

// LeftOutOf says in a line of the log how many like it were left out before.
func LeftOutOf(e *zerolog.Event, n int) *zerolog.Event {
	if n == 0 {
		return e
	}
	return e.Int("left_out", n)
}
