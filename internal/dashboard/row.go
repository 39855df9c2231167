package dashboard

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// look is what a lock looks like on the page: its state, or expiring. The words are classes in the style sheet.
type look string

const (
	held      = look(staleness.Held)
	alerting  = look(staleness.Alerting)
	expiring  = look("expiring") // held, and auto-unlocked soon: see [staleness.Verdict.ExpiringAt]
	expired   = look(staleness.Expired)
	malformed = look(staleness.Malformed)
)

// urgency orders the looks: what needs a person first comes first.
func (l look) urgency() int64 {
	switch l {
	case expired:
		return 0
	case malformed:
		return 1
	case alerting:
		return 2
	case expiring:
		return 3
	}
	return 4
}

// row is one lock in the picture: the model of which the list, the lock page and the JSON API show parts. It is
// immutable.
type row struct {
	*metadata.Record
	verdict staleness.Verdict
	look    look
	next    time.Time // when look changes if nobody touches the record; zero = never
	line
	past  *metadata.Ending // how the hold ended; nil while it lasts
	share *share           // how the hold is part of a lock that several can hold; nil for an ordinary one
	text  string           // what words are searched in, lower case
	mix   uint64           // changes with anything that a list shows
}

// line is what a list shows of a queue.
type line struct {
	waiters int
	longest time.Time // since when the longest waiter waits; zero = nobody
}

func lineOf(queue []metadata.Waiter) line {
	l := line{waiters: len(queue)}
	for _, w := range queue {
		l.longest = first(l.longest, w.Since.Time)
	}
	return l
}

// newRow judges the lock at the moment. before is an older row of the lock, or nil.
func newRow(r *metadata.Record, p staleness.Policy, at staleness.Moment, waiting line, before *row) *row {
	row := &row{Record: r, line: waiting, share: shareOf(r)}
	row.text = searchText(r, before)
	row.judge(p, at)
	return row
}

func (r *row) judge(p staleness.Policy, at staleness.Moment) {
	r.verdict = staleness.Judge(r.Record, p, at)
	r.look, r.next = look(r.verdict.State), r.verdict.Next
	if soon := r.verdict.ExpiringAt(r.Record); !soon.IsZero() {
		if at.Wall.Before(soon) {
			r.next = first(r.next, soon)
		} else {
			r.look = expiring
		}
	}
	r.mix = fnv(fnvText(r.Name), uint64(r.Revision), uint64(r.Token), uint64(r.look.urgency()),
		uint64(r.waiters), uint64(r.longest.UnixNano()), uint64(len(r.Problems)))
	if off := r.verdict.ClockOff; off != 0 {
		r.mix = fnv(r.mix, uint64(off/time.Minute))
	}
}

// deadline is the next thing that happens to the lock by itself; zero = nothing.
func (r *row) deadline() time.Time {
	if r.look == held && !r.verdict.AlertAt.IsZero() {
		return r.verdict.AlertAt
	}
	return r.verdict.AutoUnlockAt
}

// searchText is what words are searched in. Most changes leave it alone: a holder that extends moves only deadlines.
func searchText(r *metadata.Record, before *row) string {
	if before != nil && before.Name == r.Name && before.Owner == r.Owner && before.Hostname == r.Hostname &&
		before.Purpose == r.Purpose {
		return before.text
	}
	return strings.ToLower(strings.Join([]string{r.Name, r.Owner, r.Hostname, r.Purpose}, "\n"))
}

// The hash that versions what is shown (FNV-1a over whole words). It is the same in every replica.
const (
	fnvStart = uint64(14695981039346656037)
	fnvPrime = uint64(1099511628211)
)

func fnv(h uint64, values ...uint64) uint64 {
	for _, v := range values {
		h = (h ^ v) * fnvPrime
		h ^= h >> 29
	}
	return h
}

func fnvText(s string) uint64 {
	h := fnvStart
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}
