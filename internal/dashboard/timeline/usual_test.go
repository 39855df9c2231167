package timeline_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ended is a hold of this many minutes that ended like this.
func ended(token int64, how string, minutes float64) timeline.Interval {
	i := hold(token, 10*float64(token), 10*float64(token)+minutes)
	i.Ended = how
	return i
}

func TestUsualHoldIsTheMedianOfThoseReleased(t *testing.T) {
	released := func(minutes ...float64) (all []timeline.Interval) {
		for n, m := range minutes {
			all = append(all, ended(int64(n+1), metadata.EndingReleased, m))
		}
		return all
	}
	unknown := ended(8, metadata.EndingReleased, 5)
	unknown.Begin = time.Time{}
	ahead := ended(8, metadata.EndingReleased, -5)
	waited := ended(8, metadata.EndingReleased, 5)
	waited.Wait = true
	for name, test := range map[string]struct {
		all    []timeline.Interval
		median time.Duration
		holds  int
	}{
		"none":           {nil, 0, 0},
		"two":            {released(3, 5), 0, 0},
		"three":          {released(9, 3, 4), 4 * time.Minute, 3},
		"an even number": {released(9, 3, 4, 5), 4*time.Minute + 30*time.Second, 4},
		"others were ended early": {append(released(3, 4, 5), ended(4, metadata.EndingForced, 9),
			ended(5, metadata.EndingAutoUnlocked, 9), ended(6, metadata.EndingAbandoned, 9),
			ended(7, metadata.EndingYielded, 1), ended(8, "stolen", 1)), 4 * time.Minute, 3},
		"two, and others":          {append(released(3, 4), ended(4, metadata.EndingForced, 9)), 0, 0},
		"one lasts":                {append(released(3, 4, 5), hold(9, 90, 0)), 4 * time.Minute, 3},
		"one has no beginning":     {append(released(3, 4, 5), unknown), 4 * time.Minute, 3},
		"a holder's clock is fast": {append(released(3, 4, 5), ahead), 4 * time.Minute, 3},
		"one waited":               {append(released(3, 4, 5), waited), 4 * time.Minute, 3},
	} {
		median, holds := timeline.UsualHold(timeline.Merge(at(100), test.all))
		if median != test.median || holds != test.holds {
			t.Errorf("%s: the median of %d is %v, want %v of %d", name, holds, median, test.median, test.holds)
		}
	}
}
