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
func (q *Refusals) Take(who string, now time.Time) (logged bool, leftOut int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.since) >= time.Minute || now.Before(q.since) {
		for _, n := range q.lines {
			leftOut += max(0, n-linesEach)
		}
		q.since = now
		q.lines = map[string]int{}
	}
	if _, known := q.lines[who]; !known && len(q.lines) >= quietCallers {
		who = ""
	}
	q.lines[who]++
	return q.lines[who] <= linesEach, leftOut
}

// LeftOutOf says in a line of the log how many like it were left out before.
func LeftOutOf(e *zerolog.Event, n int) *zerolog.Event {
	if n == 0 {
		return e
	}
	return e.Int("left_out", n)
}
