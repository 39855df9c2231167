// Package holdtimes reads from the past of etcd's keys how long locks were held and waited for, and which deadlines
// that suggests. It is pure: its callers read etcd.
//
// A revision of etcd has no time. The presence records of unlockers do, and each writes one a second: so a hold that
// began and ended between two of them lasted no longer than they are apart. Both are read from the clock of the same
// unlocker, and no other clock counts, except for a hold that began before the past that etcd has: that began when its
// holder says so.
package holdtimes

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"
)

// Lock is how long a lock was held and waited for. A share counts for the whole lock.
type Lock struct {
	Name string

	// Held are the times of the holds that their holders ended, shortest first.
	Held []time.Duration
	// Unmeasured is the number of holds of unknown length.
	Unmeasured int
	// EndedByOthers is the number of holds that an unlocker or an operator ended: their full length is unknown.
	EndedByOthers int
	// Longest is the longest hold and LongestWait the longest wait, including current ones.
	Longest, LongestWait time.Duration

	// AlertAfter and AutoUnlockAfter are what the newest hold has; 0 = not known.
	AlertAfter, AutoUnlockAfter time.Duration

	// Beats reports whether a holder had a heartbeat.
	Beats bool

	// alerts and unlocks are, of each hold in Held, the longest time in which the holder did not postpone the alert,
	// and the auto-unlock: the hold itself if it never did.
	alerts, unlocks []time.Duration

	newest int64
}

// Locks returns what is known of each lock, by name. now is the time of the last revision.
func (p *Past) Locks(now time.Time) []*Lock {
	locks := map[string]*Lock{}
	at := func(name string) *Lock {
		if locks[name] == nil {
			locks[name] = &Lock{Name: name}
		}
		return locks[name]
	}
	for _, h := range p.over {
		l := at(h.lock)
		l.describe(h)
		held, known := p.between(h.since, h.from, h.to)
		switch {
		case h.byOther:
			l.EndedByOthers++
			continue
		case !known:
			l.Unmeasured++
			continue
		}
		l.Held = append(l.Held, held)
		l.Longest = max(l.Longest, held)
		l.alerts = append(l.alerts, p.longest(h, h.alerts))
		l.unlocks = append(l.unlocks, p.longest(h, h.unlocks))
	}
	for _, h := range p.open {
		l := at(h.lock)
		l.describe(h)
		if since := p.begun(h.since, h.from); !since.IsZero() {
			l.Longest = max(l.Longest, now.Sub(since))
		}
	}
	for _, w := range p.left {
		waited, _ := p.between(w.since, w.from, w.to)
		at(w.lock).waited(waited)
	}
	for _, w := range p.queues {
		if since := p.begun(w.since, w.from); !since.IsZero() {
			at(w.lock).waited(now.Sub(since))
		}
	}
	var all []*Lock
	for _, l := range locks {
		for _, times := range [][]time.Duration{l.Held, l.alerts, l.unlocks} {
			slices.Sort(times)
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *Lock) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (l *Lock) waited(d time.Duration) { l.LongestWait = max(l.LongestWait, d) }

func (l *Lock) describe(h *hold) {
	l.waited(h.waited)
	l.Beats = l.Beats || h.beats
	if h.from >= l.newest && h.alertAfter+h.autoUnlockAfter > 0 {
		l.newest = h.from
		l.AlertAfter = h.alertAfter
		l.AutoUnlockAfter = h.autoUnlockAfter
	}
}

// longest returns the longest time of the hold between two of the revisions, its beginning and its end.
func (p *Past) longest(h *hold, revisions []int64) time.Duration {
	longest := time.Duration(0)
	from := h.from
	for _, to := range append(slices.Clone(revisions), h.to) {
		d, _ := p.between(h.since, from, to)
		longest = max(longest, d)
		from = to
	}
	return longest
}

// between returns the most time that can lie between two revisions, by the clock that tells them apart best; false if
// no clock knows both. What began before the first revision (from is 0) began at since.
func (p *Past) between(since time.Time, from, to int64) (time.Duration, bool) {
	var times []time.Duration
	for _, ticks := range p.clocks {
		end := sort.Search(len(ticks), func(i int) bool { return ticks[i].revision >= to })
		if end == len(ticks) {
			continue
		}
		begin := since
		if from > 0 {
			begin = before(ticks, from)
		}
		if !begin.IsZero() {
			times = append(times, max(0, ticks[end].at.Sub(begin)))
		}
	}
	if len(times) == 0 {
		return 0, false
	}
	return slices.Min(times), true
}

// begun is when something began, at the earliest; zero if nothing says so.
func (p *Past) begun(since time.Time, from int64) time.Time {
	if from == 0 {
		return since
	}
	var times []time.Time
	for _, ticks := range p.clocks {
		if at := before(ticks, from); !at.IsZero() {
			times = append(times, at)
		}
	}
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// before is the last tick before the revision; zero if there is none.
func before(ticks []tick, revision int64) time.Time {
	i := sort.Search(len(ticks), func(i int) bool { return ticks[i].revision > revision })
	if i == 0 {
		return time.Time{}
	}
	return ticks[i-1].at
}

// Percentile returns the time that this percentage of the holds did not exceed, by nearest rank: one of the times.
// There must be some.
func Percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[cmp.Or(rank, 1)-1]
}

// MinHolds is the number of holds below which nothing is suggested.
const MinHolds = 20

const (
	alertFactor  = 2 // of the 99th percentile
	unlockFactor = 5 // of the 99th percentile
	longestTimes = 2 // no auto-unlock comes before this many times the longest hold

	shortestAlert  = 30 * time.Second
	shortestUnlock = time.Minute // what a heartbeat has unless the program says otherwise
)

// Suggestion is what the deadlines of a lock should be.
type Suggestion struct {
	AlertAfter time.Duration
	// AutoUnlockAfter is 0 for a lock with a heartbeat, where it says how soon the lock of a dead holder is free.
	AutoUnlockAfter time.Duration
}

// Suggest returns deadlines that the holds up to now would have kept, with room; false if there are too few of them.
// What counts is not the whole hold but the longest time in it without a call of alive, which postpones the deadlines.
func (l *Lock) Suggest() (Suggestion, bool) {
	if len(l.Held) < MinHolds {
		return Suggestion{}, false
	}
	s := Suggestion{AlertAfter: roundUp(max(alertFactor*Percentile(l.alerts, 99), shortestAlert))}
	if !l.Beats {
		s.AutoUnlockAfter = roundUp(max(unlockFactor*Percentile(l.unlocks, 99),
			longestTimes*l.unlocks[len(l.unlocks)-1], shortestUnlock, s.AlertAfter))
	}
	return s, true
}

// roundUp returns the next time that a person would write down.
func roundUp(d time.Duration) time.Duration {
	step := 24 * time.Hour
	for _, s := range []struct{ below, step time.Duration }{
		{time.Minute, 10 * time.Second}, {10 * time.Minute, time.Minute}, {time.Hour, 5 * time.Minute},
		{6 * time.Hour, 15 * time.Minute}, {48 * time.Hour, time.Hour},
	} {
		if d <= s.below {
			step = s.step
			break
		}
	}
	return (d + step - 1).Truncate(step)
}
