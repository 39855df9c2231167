// Package timeline has who held a lock and who waited for it, and when, and lays that out as a chart. It draws nothing.
package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Interval is a hold, or a wait for one.
type Interval struct {
	Lock  string // of a share: the lock that it is a part of
	Name  string // as it is held: the lock, or the share
	ID    string // of a hold its uuid, of a wait its ticket
	Token int64  // of a hold
	Wait  bool

	Owner, Host string
	PID         int64

	Begin, End time.Time // a zero End: it lasts
	Guessed    bool      // nobody knows when it began
	Alert      time.Time // of a hold; zero: it has none
	Ended      string    // how a hold ended, as etcd has it
	Taken      bool      // a wait ended with the lock
}

// maxText is how much of an owner or a host is kept, in bytes.
const maxText = 80

// OfRecord is a hold that lasts.
func OfRecord(r *metadata.Record) Interval {
	return OfEnding(new(lockrecord.NewEnding(r, "", "", "", time.Time{})))
}

// OfEnding is a hold that is over.
func OfEnding(e *metadata.Ending) Interval {
	share := metadata.ShareFromAttributes(e.Name, e.Attributes)
	return Interval{Lock: cmp.Or(share.LockName, e.Name), Name: e.Name, ID: e.UUID, Token: e.Token,
		Owner: text.Clip(e.Owner, maxText), Host: text.Clip(e.Hostname, maxText), PID: e.PID,
		Begin: e.LockedAt.Time, End: e.EndedAt.Time, Alert: e.AlertAt.Time, Ended: e.Cause}
}

// OfQueue are the waits of a queue.
func OfQueue(queue []metadata.Waiter) []Interval {
	waits := make([]Interval, len(queue))
	for i := range queue {
		waits[i] = ofWaiter(&queue[i])
	}
	return waits
}

// ofWaiter is a wait that lasts.
func ofWaiter(w *metadata.Waiter) Interval {
	return Interval{Lock: w.Name, Name: w.Name, ID: w.ID, Wait: true, Owner: text.Clip(w.Owner, maxText),
		Host: text.Clip(w.Hostname, maxText), PID: w.PID, Begin: w.Since.Time}
}

// HistoryID is where the ending of the hold is recorded.
func (i *Interval) HistoryID() string {
	r := metadata.Record{UUID: i.ID, Token: i.Token}
	return r.HistoryID()
}

// Within is how much of the interval lies between two moments. One that lasts does so until the second one.
func (i *Interval) Within(from, to time.Time) time.Duration {
	begin, end := i.Begin, i.End
	if begin.Before(from) {
		begin = from
	}
	if end.IsZero() || end.After(to) {
		end = to
	}
	return max(0, end.Sub(begin))
}

// Late is since when the hold was past its alert, as far as it got there by now; else zero.
func (i *Interval) Late(now time.Time) time.Time {
	end := cmp.Or(i.End, now)
	if i.Alert.IsZero() || !i.Alert.Before(end) {
		return time.Time{}
	}
	return i.Alert
}

// key is the same for what several sources know of one hold or wait.
type key struct {
	name, id string
	token    int64
	wait     bool
}

func (i *Interval) key() key {
	if i.Wait {
		return key{i.Name, i.ID, 0, true}
	}
	return key{i.Name, "", i.Token, false}
}

// Join puts together what several sources know as of now; where two know of the same hold or wait, the first one
// counts. Holds of one record never overlap: where the clocks of their holders or the way to the dashboard say so, the
// one that ended first gives way.
func Join(now time.Time, sources ...[]Interval) []Interval {
	var all []Interval
	known := map[key]bool{}
	for _, source := range sources {
		for _, i := range source {
			if k := i.key(); !known[k] && (i.Wait || i.Token != 0) {
				known[k] = true
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, func(a, b Interval) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), lasting(a)-lasting(b), a.End.Compare(b.End),
			cmp.Compare(a.Token, b.Token), a.Begin.Compare(b.Begin), cmp.Compare(a.ID, b.ID))
	})
	var before *Interval // the last hold
	for n := range all {
		i := &all[n]
		i.straighten(now)
		if i.Wait {
			continue
		}
		if before != nil && before.Name == i.Name {
			i.follow(before)
		}
		before = i
	}
	return all
}

// lasting is 1 for what lasts.
func lasting(i Interval) int {
	if i.End.IsZero() {
		return 1
	}
	return 0
}

// straighten has an interval begin before it ends, and not after now.
func (i *Interval) straighten(now time.Time) {
	end := cmp.Or(i.End, now)
	i.Guessed = i.Begin.IsZero()
	if i.Guessed || i.Begin.After(end) {
		i.Begin = end
	}
}

// follow has a hold begin where the one before it ended, at the earliest.
func (i *Interval) follow(before *Interval) {
	switch {
	case !before.End.IsZero() && !i.Begin.Before(before.End):
		return
	case i.Begin.After(before.Begin):
		before.End = i.Begin
		return
	case before.End.IsZero():
		before.End = before.Begin
	}
	i.Begin = before.End
	if !i.End.IsZero() && i.End.Before(i.Begin) {
		i.End = i.Begin
	}
}
