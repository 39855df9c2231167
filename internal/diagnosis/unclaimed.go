package diagnosis

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MinFree is how long a lock has to be free. A hand-over takes milliseconds. The worst that is normal is a first in
// line that dies, whose lease ends within ten seconds, before one whose watch has fallen silent, which looks every ten
// seconds; with a few seconds each for etcd to end the lease and for a new watch, that is below half a minute.
const MinFree = 30 * time.Second

// FreeLocks is what an observer of the locks knows. Its times are those of one monotonic clock.
type FreeLocks struct {
	// Free is since when a lock has been free and waited for, as the observer saw it.
	Free   map[string]time.Duration
	Queues map[string][]metadata.Waiter // by lock, first in line first
	// Followed is since when the observer has missed nothing; Synced is false while it may miss something.
	Followed time.Duration
	Synced   bool
	Now      time.Duration
	Wall     time.Time // the same moment on the wall clock
}

// Unclaimed is a lock that nobody takes. Its text comes from clients.
type Unclaimed struct {
	Name    string
	Since   time.Time // when it became free, by the observer's clock
	Waiters int
	First   metadata.Waiter // the first in line

	since time.Duration // the same on the monotonic clock
}

// FindUnclaimed returns the locks that are free but not taken, those that have been free for longest first: they have
// had waiters for longer than any hand-over lasts, and the first in line does not take its turn. The usual cause is a
// client that keeps its ticket alive but no longer does anything else: its worker hangs, and the part that renews its
// lease does not. A ticket without a lease does the same.
//
// A lock counts once it was free for [MinFree] while the observer missed nothing. One that was found before counts
// until it is taken, however often the observer is interrupted, and keeps its Since.
func FindUnclaimed(before []Unclaimed, v FreeLocks) (found []Unclaimed) {
	known := make(map[string]Unclaimed, len(before))
	for _, l := range before {
		known[l.Name] = l
	}
	for name, since := range v.Free {
		queue := v.Queues[name]
		if len(queue) == 0 {
			continue // free and queues were read one after the other
		}
		l := Unclaimed{Name: name, Since: v.Wall.Add(since - v.Now), Waiters: len(queue), First: queue[0], since: since}
		if b, was := known[name]; was && b.since == since {
			l.Since = b.Since
		} else if !v.Synced {
			continue
		} else if v.Now < max(since, v.Followed)+MinFree {
			continue
		}
		found = append(found, l)
	}
	slices.SortFunc(found, func(a, b Unclaimed) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return found
}
