package timeline

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// minUsual is the number of holds below which none of them is called usual.
const minUsual = 3

// UsualHold returns the median length of the holds that their holders released, and how many there are. Both are 0 if
// there are fewer than three. The intervals are those that [Merge] returns.
//
// A hold that was ended by others, or early on request, does not count: the work might have taken longer. Neither does
// a hold without length: its beginning is unknown, or the clock of its holder is ahead.
func UsualHold(all []Interval) (median time.Duration, holds int) {
	var lengths []time.Duration
	for n := range all {
		i := &all[n]
		if !i.Wait && i.Ended == metadata.EndingReleased && i.End.After(i.Begin) {
			lengths = append(lengths, i.End.Sub(i.Begin))
		}
	}
	if holds = len(lengths); holds < minUsual {
		return 0, 0
	}
	slices.Sort(lengths)
	return (lengths[(holds-1)/2] + lengths[holds/2]) / 2, holds
}
