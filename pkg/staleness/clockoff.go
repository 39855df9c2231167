package staleness

import (
	"math"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// minHolderTolerance is longer than a write can take to reach us if nothing is wrong: the attempts of a client, plus
// how late a watch may be before it counts as dead.
const minHolderTolerance = 30 * time.Second

// HolderTolerance returns how far a holder's clock may differ from ours before it counts as off.
func (p Policy) HolderTolerance() time.Duration { return max(p.ClockSkew, minHolderTolerance) }

// clockOff returns how far the holder's clock is ahead of ours, or 0 if that is within the tolerance. The holder only
// counts as behind if the write was watched arriving and cannot have waited on its way for an unavailable etcd. It
// counts as ahead in any case: no time can be read before it is written.
func clockOff(r *metadata.Record, p Policy, now Moment) time.Duration {
	ahead := aheadOf(r, now)
	if ahead.Abs() <= p.HolderTolerance() {
		return 0
	}
	// rounded, so that it is the same each time although the two clocks are never read at the same instant
	rounded := ahead.Round(100 * time.Millisecond)
	seen := r.Seen.Arrived
	switch behind := -ahead; {
	case ahead > 0:
		return rounded
	case seen != 0 && (seen-behind >= r.Seen.Followed || behind >= r.AutoUnlockAt.Sub(r.Written())):
		return rounded
	}
	return 0
}

// aheadOf returns by how much the holder's time of writing the record is after our time of its arrival; negative =
// before; 0 if either is not known.
func aheadOf(r *metadata.Record, now Moment) time.Duration {
	written := r.Written()
	seen := r.Seen.Changed
	if r.Seen.Arrived != 0 {
		seen = r.Seen.Arrived
	}
	if written.IsZero() || seen < 0 {
		return 0
	}
	return max(-math.MaxInt64, written.Sub(now.Wall.Add(seen-now.Mono)))
}
