package lockview

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// settling is under which policy and clocks the items were found to be settled.
type settling struct {
	policy staleness.Policy
	epoch  time.Time // what the wall clock showed when the view was created
}

// settleAtOnce is the number of locks of which it is noted under one lock of the mutex that they are settled.
const settleAtOnce = 500

// Survey returns what there is to judge at a moment of the view's clock. It costs little for locks that are settled,
// and as much as judging them for the others.
func (v *View) Survey(p staleness.Policy, now staleness.Moment) staleness.Survey {
	v.mu.Lock()
	v.resettle(p, now)
	unsettled, settled := v.snap.locks.unsettled(now.Mono)
	oldest := v.snap.locks.oldest()
	v.mu.Unlock()

	var restless []*metadata.Record
	var calm []item
	for _, rec := range unsettled {
		until := staleness.SettledUntil(&rec.Record, p, now)
		if until <= now.Mono {
			restless = append(restless, &rec.Record)
			continue
		}
		settled++
		if calm = append(calm, item{rec: rec, settledUntil: until}); len(calm) == settleAtOnce {
			v.settle(calm)
			calm = calm[:0]
		}
	}
	v.settle(calm)
	return staleness.Survey{Unsettled: slices.Values(restless), Settled: settled, Oldest: oldest}
}

// SurveyShown is [View.Survey] of what [View.Shown] returns.
func (v *View) SurveyShown(p staleness.Policy, now staleness.Moment) staleness.Survey {
	survey := v.Survey(p, now)
	v.mu.Lock()
	misplaced := v.misplaced()
	v.mu.Unlock()
	if len(misplaced) == 0 {
		return survey
	}
	survey.Unsettled = slices.Values(slices.Concat(slices.Collect(survey.Unsettled), misplaced))
	return survey
}

// resettle forgets which locks are settled if that was found out under another policy, or if the wall clock has moved
// against the monotonic one. The caller holds mu.
func (v *View) resettle(p staleness.Policy, now staleness.Moment) {
	epoch := now.Wall.Add(-now.Mono)
	if v.settling.policy == p && v.settling.epoch.Sub(epoch).Abs() <= staleness.SettledTolerance {
		return
	}
	v.settling = settling{policy: p, epoch: epoch}
	for _, chunk := range v.snap.locks.chunks {
		for i := range chunk {
			chunk[i].settledUntil = 0
		}
	}
}

// settle notes until when locks are settled, unless they have changed.
func (v *View) settle(calm []item) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, it := range calm {
		v.snap.locks.settle(it)
	}
}

// unsettled returns the locks that are not known to be settled, by name, and counts the others.
func (x *index) unsettled(now time.Duration) (unsettled []*held, settled int) {
	for _, chunk := range x.chunks {
		for _, it := range chunk {
			if it.settledUntil > now {
				settled++
			} else {
				unsettled = append(unsettled, it.rec)
			}
		}
	}
	return unsettled, settled
}

// settle notes until when a lock is settled, unless it has changed.
func (x *index) settle(it item) {
	if chunk, pos, found := x.find(it.name()); found && x.chunks[chunk][pos].rec == it.rec {
		x.chunks[chunk][pos].settledUntil = it.settledUntil
	}
}

// oldest returns when the lock that was taken first was taken, by its holder's clock; zero if none says.
func (x *index) oldest() time.Time {
	if x.first == nil {
		for _, chunk := range x.chunks {
			for _, it := range chunk {
				x.first = earlier(x.first, it.rec)
			}
		}
	}
	if x.first == nil {
		return time.Time{}
	}
	return x.first.LockedAt
}

// rank notes a lock that came, if it was taken before all others.
func (x *index) rank(rec *held) {
	if x.first != nil {
		x.first = earlier(x.first, rec)
	}
}

// unrank notes that a lock goes.
func (x *index) unrank(rec *held) {
	if x.first == rec {
		x.first = nil
	}
}

// rerank notes that a record takes the place of another one of the same lock.
func (x *index) rerank(before, after *held) {
	if x.first == before && after.LockedAt.Equal(before.LockedAt) {
		x.first = after
		return
	}
	x.unrank(before)
	x.rank(after)
}

// earlier returns the one of two locks that was taken first; a may be nil.
func earlier(a, b *held) *held {
	if b.LockedAt.IsZero() || a != nil && !b.LockedAt.Before(a.LockedAt) {
		return a
	}
	return b
}
