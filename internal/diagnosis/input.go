package diagnosis

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ReportInterval returns the average time between two reports of the holder, which each move its deadline; 0 = unknown.
func ReportInterval(r *metadata.Record) time.Duration {
	if r.Extensions < 2 || r.Alive == nil || r.LockedAt.IsZero() { // of one extension nobody knows a rhythm
		return 0
	}
	return max(0, r.Alive.At.Sub(r.LockedAt)) / time.Duration(r.Extensions)
}

// ReportsProgress reports whether the last report of the holder was progress, as far as its record tells. Progress puts
// the alert ahead and may have a text; a heartbeat repeats the text and leaves the alert where it is. So a report after
// the alert was a heartbeat; before it, only the text tells.
func ReportsProgress(r *metadata.Record) bool {
	return r.Alive != nil && r.Alive.Progress != "" && r.Alive.At.Before(r.AlertAt)
}

// minPast is how many past holds are needed before they say what is usual.
const minPast = 5

// HoldPercentiles returns the median and the 95th percentile of past holds; zeros if there are too few.
func HoldPercentiles(past []metadata.Ending) (median, p95 time.Duration) {
	var held []time.Duration
	for i := range past {
		if e := &past[i]; !e.LockedAt.IsZero() && !e.EndedAt.Before(e.LockedAt.Time) {
			held = append(held, e.EndedAt.Sub(e.LockedAt.Time))
		}
	}
	n := len(held)
	if n < minPast {
		return 0, 0
	}
	slices.Sort(held)
	return held[n/2], held[min(n-1, n*95/100)]
}

// AddPastHolds adds the durations of past holds of the lock: of those that their holders ended or, if none is known, of
// the others.
func (f *Input) AddPastHolds(past []metadata.Ending) {
	var own []metadata.Ending
	for _, e := range past {
		if e.Cause == metadata.EndingReleased || e.Cause == metadata.EndingYielded {
			own = append(own, e)
		}
	}
	f.Forced = len(own) == 0
	if !f.Forced {
		past = own
	}
	f.MedianHold, f.P95Hold = HoldPercentiles(past)
}

// maxChain is how many waits are followed; the page of all waiters shows more.
const maxChain = 4

// WaitChain follows the waits from the holder of a record to the holder of the lock that it waits for, and so on; empty
// if no wait is known. It ends when it returns to a lock. holders returns the holders of a lock; the first one counts.
func WaitChain(r *metadata.Record, queues map[string][]metadata.Waiter,
	holders func(lock string) ([]*metadata.Record, error)) (chain []Wait, err error) {
	met := map[string]bool{r.QueueName(): true}
	own := r.QueueName()
	for len(chain) < maxChain {
		w := waitsFor(r, queues)
		switch {
		case w == nil || met[w.Lock] && w.Lock != own:
			return chain, nil
		case w.Lock == own:
			return append(chain, Wait{Since: w.Since}), nil
		}
		met[w.Lock] = true
		held, err := holders(w.Lock)
		if err != nil {
			return nil, err
		}
		if len(held) == 0 {
			return append(chain, *w), nil
		}
		r = held[0]
		w.Holder = deadlock.Process{Owner: r.Owner, Host: r.Hostname, PID: r.PID}.String()
		chain = append(chain, *w)
	}
	return chain, nil
}

// waitsFor returns the longest wait of the record's holder for another lock; nil if none is known. A program
// that does several things at once may wait in one of them and work in another.
func waitsFor(r *metadata.Record, queues map[string][]metadata.Waiter) *Wait {
	identified := r.Hostname != "" && r.PID != 0 // others cannot be told apart
	var found *Wait
	for lock, queue := range queues {
		if lock == r.QueueName() {
			continue
		}
		for i := range queue {
			w := &queue[i]
			same := identified && w.Hostname == r.Hostname && w.PID == r.PID && w.Owner == r.Owner
			if w.Holding || !same && !slices.Contains(strings.Fields(w.Under), r.UUID) {
				continue
			}
			if found == nil || w.Since.Before(found.Since) || w.Since.Equal(found.Since) && lock < found.Lock {
				found = &Wait{Lock: lock, Since: w.Since.Time}
			}
		}
	}
	return found
}
