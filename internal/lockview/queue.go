package lockview

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// queues holds the waiters by lock.
type queues map[string]*queue

// queue is the waiters of one lock. They are put in order when somebody asks, not at every change: a queue may be as
// long as a hostile writer likes.
type queue struct {
	waiters map[string]metadata.Waiter // by ticket
	sorted  []metadata.Waiter          // never written to; nil when out of date
}

// put adds or changes a waiter that is seen now, or was before. One that got the lock keeps its ticket, with a mark: it
// waits no more.
func (q queues) put(w metadata.Waiter) {
	if w.Holding {
		q.remove(w.Lock, w.ID)
		return
	}
	w.Seen = q.seen(w)
	if q[w.Lock] == nil {
		q[w.Lock] = &queue{waiters: map[string]metadata.Waiter{}}
	}
	q[w.Lock].waiters[w.ID] = w
	q[w.Lock].sorted = nil
}

// seen is when the waiter was first seen: as it says itself, or earlier where it is known.
func (q queues) seen(w metadata.Waiter) time.Duration {
	if of := q[w.Lock]; of != nil {
		if before, known := of.waiters[w.ID]; known && before.Place == w.Place && before.Since.Equal(w.Since.Time) {
			return min(before.Seen, w.Seen)
		}
	}
	return w.Seen
}

// since takes from earlier queues when those who still wait were first seen.
func (q queues) since(earlier queues) {
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

// of returns the waiters of a lock in order.
func (q queues) of(lock string) []metadata.Waiter {
	of := q[lock]
	if of == nil {
		return nil
	}
	if of.sorted == nil {
		of.sorted = slices.SortedFunc(maps.Values(of.waiters), func(a, b metadata.Waiter) int {
			return cmp.Or(cmp.Compare(a.Place, b.Place), strings.Compare(a.ID, b.ID))
		})
	}
	return of.sorted
}

// waiter reads a ticket that is seen now. One that can not be read is a waiter all the same, of whom nothing is known
// but the place.
func waiter(lock, ticket string, kv protocol.KV, seen time.Duration, i *interner) metadata.Waiter {
	t, _ := document[metadata.Ticket](kv.Value)
	t.UUID = clip(t.UUID)
	t.Owner, t.Hostname, t.Purpose = i.text(clip(t.Owner)), i.text(clip(t.Hostname)), i.text(clip(t.Purpose))
	return metadata.Waiter{Ticket: t, Lock: i.text(lock), ID: strings.Clone(ticket), Place: kv.CreateRevision,
		Seen: seen}
}

// document reads one of the protocol's documents, or nothing where it can not be read; ok tells which.
func document[T metadata.Ticket | metadata.Ending | metadata.Presence](value []byte) (d T, ok bool) {
	if len(value) > metadata.MaxRecordBytes { // none is so large, and reading it takes time
		return d, false
	}
	read, err := protocol.Unmarshal[T](value)
	if err != nil {
		return d, false
	}
	return read, true
}

// clip cuts a text of a hostile writer to the longest that the protocol allows.
func clip(s string) string {
	if len(s) <= metadata.MaxTextBytes {
		return s
	}
	return strings.ToValidUTF8(strings.Clone(s[:metadata.MaxTextBytes]), "")
}
