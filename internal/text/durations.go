package text

import (
	"fmt"
	"time"
)

// DurationWords is a length of time in a sentence, in the largest unit of which there are at least two: "3 minutes". It is
// rounded down.
func DurationWords(d time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{day, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}, {time.Second, "seconds"}} {
		if n := d / u.unit; n >= 2 {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	return "1 second"
}
