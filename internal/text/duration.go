package text

import (
	"fmt"
	"time"
)

// Duration writes a positive duration in the largest unit of which there are at least two, rounded down: "3 minutes".
func Duration(d time.Duration) string {
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
