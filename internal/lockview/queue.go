package lockview

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

type queues map[string]*queue

// queue holds the waiters of one lock. They are sorted when read, not at every change: a hostile writer can make a
// queue arbitrarily long.
type queue struct {
	waiters map[string]metadata.Waiter // by ticket
	sorted  []metadata.Waiter          // never written to; nil when out of date
}

// put adds or changes a waiter, as it was read at now. A waiter that got the lock keeps its ticket, marked as holding,
// and is removed here.
func (q queues) put(w metadata.Waiter, now time.Duration) {
	if w.Holding {
		q.remove(w.Name, w.ID)
		return
	}
	w.Seen = now
	w.Seen = q.seen(w)
	if q[w.Name] == nil {
		q[w.Name] = &queue{waiters: map[string]metadata.Waiter{}}
	}
	q[w.Name].waiters[w.ID] = w
	q[w.Name].sorted = nil
}

// seen returns when the waiter was first seen: w.Seen, or earlier if the queue already has the waiter.
func (q queues) seen(w metadata.Waiter) time.Duration {
	if of := q[w.Name]; of != nil {
		if before, known := of.waiters[w.ID]; known && before.Revision == w.Revision &&
			before.Since.Equal(w.Since.Time) {
			return min(before.Seen, w.Seen)
		}
	}
	return w.Seen
}

// keepSeen keeps the times at which the remaining waiters were first seen.
func (q queues) keepSeen(earlier queues) {
	for _, of := range q {
		for id, w := range of.waiters {
			w.Seen = earlier.seen(w)
			of.waiters[id] = w
		}
	}
}

func (q queues) remove(lock, ticket string) {
	of := q[lock]
	if of == nil {
		return
	}
	delete(of.waiters, ticket)
	of.sorted = nil
	if len(of.waiters) == 0 {
		delete(q, lock)
	}
}

// inOrder returns the waiters, the next one first.
func (q *queue) inOrder() []metadata.Waiter {
	if q.sorted == nil {
		q.sorted = slices.SortedFunc(maps.Values(q.waiters), func(a, b metadata.Waiter) int {
			return cmp.Or(cmp.Compare(a.Revision, b.Revision), strings.Compare(a.ID, b.ID))
		})
	}
	return q.sorted
}
