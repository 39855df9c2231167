package staleness

import (
	"math"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// leastHolderTolerance is more than the time for which a write can be on its way to us although nothing is wrong: the
// attempts of a client, and what a watch may be late before it is given up.
const leastHolderTolerance = 30 * time.Second

// HolderTolerance is how far a holder's clock may differ from ours before it counts as off.
func (p Policy) HolderTolerance() time.Duration { return max(p.ClockSkew, leastHolderTolerance) }

// clockOff is how far the holder's clock is ahead of ours, if that is more than is tolerated. What the holder's clock
// showed when it wrote the record is compared with what ours showed when the record arrived. That it was behind is only
// believed of a write that was watched arriving and can not have waited on its way for an etcd that was away. That it
// was ahead shows in any case: nobody reads a time before it is written.
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
	told := ahead.Round(100 * time.Millisecond) // the same at every look, though two clocks are never read at once
	switch behind := -ahead; {
	case ahead > p.HolderTolerance():
		return told
	case live && behind > p.HolderTolerance() &&
		(seen-behind >= r.Seen.Followed || behind >= r.AutoUnlockAt.Sub(written)):
		return told
	}
	return 0
}
