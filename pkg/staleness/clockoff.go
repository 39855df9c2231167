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

// clockOff returns how far the holder's clock is ahead of ours, or 0 if that is within the tolerance. It compares the
// holder's time of writing the record with our time of its arrival. The holder only counts as behind if the write was
// watched arriving and cannot have waited on its way for an unavailable etcd. It counts as ahead in any case: no time
// can be read before it is written.
func clockOff(r *metadata.Record, p Policy, now Moment) time.Duration {
	written := r.Written()
	live := r.Seen.Arrived != 0
	seen := r.Seen.Changed
	if live {
		seen = r.Seen.Arrived
	}
	if written.IsZero() || seen < 0 {
		return 0
	}
	ahead := max(-math.MaxInt64, written.Sub(now.Wall.Add(seen-now.Mono)))
	// rounded, so that it is the same each time although the two clocks are never read at the same instant
	rounded := ahead.Round(100 * time.Millisecond)
	switch behind := -ahead; {
	case ahead > p.HolderTolerance():
		return rounded
	case live && behind > p.HolderTolerance() &&
		(seen-behind >= r.Seen.Followed || behind >= r.AutoUnlockAt.Sub(written)):
		return rounded
	}
	return 0
}
