package text

import (
	"fmt"
	"strconv"
	"time"
)

// What has passed is rounded down, what is ahead to the nearest unit: what was set to five minutes a moment ago does
// not read as four. app.js says the same with the same rules.

const day = 24 * time.Hour

// CloseBy is where a countdown begins to show seconds.
const CloseBy = 2 * time.Minute

// Duration is a length of time to two units: 42s, 14m, 3h 10m, 2d 4h, 12d. It is rounded down; a negative one is 0s.
func Duration(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	case d < 10*day:
		return two(d/day, "d", d%day/time.Hour, "h")
	}
	return fmt.Sprintf("%dd", d/day)
}

func two(a time.Duration, unitA string, b time.Duration, unitB string) string {
	s := strconv.FormatInt(int64(a), 10) + unitA
	if b == 0 {
		return s
	}
	return s + " " + strconv.FormatInt(int64(b), 10) + unitB
}

// Countdown is the time left: 1:42 below two minutes, rounded up, so that 0:00 is never early; else as [Duration],
// rounded to the nearest unit.
func Countdown(d time.Duration) string {
	switch {
	case d >= day:
		return Duration(d.Round(time.Hour))
	case d >= CloseBy:
		return Duration(d.Round(time.Minute))
	}
	return digits(max(0, d) + time.Second - 1)
}

// Overdue is the time since a deadline: +0:34, later +14m.
func Overdue(d time.Duration) string {
	if d >= CloseBy {
		return "+" + Duration(d)
	}
	return "+" + digits(max(0, d))
}

// digits is minutes and whole seconds.
func digits(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", d/time.Minute, d%time.Minute/time.Second)
}

// Age is how long ago t was. An instant ahead of now by more than a second is shown as such; the zero time is empty.
func Age(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now.Add(time.Second)):
		return Relative(t, now)
	}
	return Duration(now.Sub(t))
}

// Relative says when t is or was: "in 1:42", "14m ago"; empty for the zero time.
func Relative(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return "in " + Countdown(t.Sub(now))
	}
	return Duration(now.Sub(t)) + " ago"
}

// DurationWords is a length of time in a sentence, in the largest unit of which there are at least two: "3 minutes". It
// is rounded down.
func DurationWords(d time.Duration) string {
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

// RelativeWords says in a sentence when t is or was: "in 3 minutes", "3 minutes ago", "just now".
func RelativeWords(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d.Abs() < time.Second:
		return "just now"
	case d > 0:
		return "in " + DurationWords(nearest(d))
	}
	return DurationWords(-d) + " ago"
}

// nearest rounds the time left to the unit that [DurationWords] shows.
func nearest(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{day, time.Hour, time.Minute} {
		if d.Round(time.Second) >= 2*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}
