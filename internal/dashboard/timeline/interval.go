// Package timeline has who held a lock and who waited for it, and when, and lays that out as a chart. It draws nothing.
package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
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

	Begin, End   time.Time // a zero End: it lasts
	BeginUnknown bool      // Begin is a guess
	Alert        time.Time // of a hold; zero: it has none
	Dead         bool      // a hold lasts, but its holder has ended
	Ended        string    // how a hold ended, as etcd has it
	Acquired     bool      // a wait ended because it got the lock
}

// maxText is how much of an owner or a host is kept, in bytes.
const maxText = 80

func FromRecord(r *metadata.Record) Interval {
	i := FromEnding(new(lockrecord.NewEnding(r, "", "", "", time.Time{})))
	i.Dead = r.ProvenDead()
	return i
}

func FromEnding(e *metadata.Ending) Interval {
	share := e.Share()
	return Interval{Lock: cmp.Or(share.LockName, e.Name), Name: e.Name, ID: e.UUID, Token: e.Token,
		Owner: text.Clip(e.Owner, maxText), Host: text.Clip(e.Hostname, maxText), PID: e.PID,
		Begin: cmp.Or(e.LockedAt.Time, e.SeenAt), BeginUnknown: e.LockedAt.IsZero(), End: e.EndedAt.Time,
		Alert: e.AlertAt.Time, Ended: e.Cause}
}

func FromQueue(queue []metadata.Waiter) []Interval {
	waits := make([]Interval, len(queue))
	for i := range queue {
		waits[i] = fromWaiter(&queue[i])
	}
	return waits
}

func fromWaiter(w *metadata.Waiter) Interval {
	return Interval{Lock: w.Name, Name: w.Name, ID: w.ID, Wait: true, Owner: text.Clip(w.Owner, maxText),
		Host: text.Clip(w.Hostname, maxText), PID: w.PID, Begin: w.Since.Time}
}

// HistoryID returns the id of the hold in the history.
func (i *Interval) HistoryID() string {
	r := metadata.Record{UUID: i.ID, Token: i.Token}
	return r.HistoryID()
}

// lengthWithin returns how much of the interval lies between from and to. A current one lasts until to.
func (i *Interval) lengthWithin(from, to time.Time) time.Duration {
	return max(0, protocol.Earlier(i.End, to).Sub(protocol.Later(i.Begin, from)))
}

// LateSince returns the alert time of a hold that passed it, else zero.
func (i *Interval) LateSince(now time.Time) time.Time {
	end := cmp.Or(i.End, now)
	if i.Alert.IsZero() || !i.Alert.Before(end) {
		return time.Time{}
	}
	return i.Alert
}

// key identifies a hold or wait across sources.
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

// Merge merges intervals from several sources; of duplicates, the first one counts. Holds of one record never overlap:
// if they seem to, because of the holders' clocks or of late reports, the one that ended first is shortened.
func Merge(now time.Time, sources ...[]Interval) []Interval {
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
		return cmp.Or(cmp.Compare(a.Name, b.Name),
			cmp.Compare(protocol.SortableTime(a.End), protocol.SortableTime(b.End)), cmp.Compare(a.Token, b.Token),
			a.Begin.Compare(b.Begin), cmp.Compare(a.ID, b.ID))
	})
	all = dropContinued(all)
	var before *Interval // the last hold
	for n := range all {
		i := &all[n]
		i.clampBegin(now)
		if i.Wait {
			continue
		}
		if before != nil && before.Name == i.Name {
			i.beginAfter(before)
		}
		before = i
	}
	return all
}

// dropContinued drops waits that went on under another ticket, as after an outage: that one began at the same time. It
// wants the intervals in the order of their ends.
func dropContinued(all []Interval) []Interval {
	type call struct {
		name, owner, host string
		pid, begin        int64
	}
	callOf := func(i *Interval) call { return call{i.Name, i.Owner, i.Host, i.PID, i.Begin.UnixNano()} }
	last := map[call]string{}
	for n := range all {
		if all[n].Wait {
			last[callOf(&all[n])] = all[n].ID
		}
	}
	return slices.DeleteFunc(all, func(i Interval) bool {
		return i.Wait && !i.Begin.IsZero() && !i.End.IsZero() && !i.Acquired && last[callOf(&i)] != i.ID
	})
}

// clampBegin moves the begin to the end, or to now, if it is later or unknown.
func (i *Interval) clampBegin(now time.Time) {
	i.BeginUnknown = i.BeginUnknown || i.Begin.IsZero()
	i.Begin = protocol.Earlier(i.Begin, cmp.Or(i.End, now))
}

// beginAfter ends the overlap of a hold with the one before it.
func (i *Interval) beginAfter(before *Interval) {
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
