// Package phrase puts time into words: lengths, instants as they look from a viewpoint, and sentences that hold them.
package phrase

import (
	"fmt"
	"strconv"
	"time"
)

// The words for time on every page. app.js says the same with the same rules, so that a text ticks on without a jump.

// Duration is a length of time to two units: 42s, 14m, 3h 10m, 2d 4h, 12d. Negative ones are 0s.
func Duration(d time.Duration) string {
	d = max(0, d)
	minutes := int(d / time.Minute)
	hours := int(d / time.Hour)
	switch days := hours / 24; {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case hours == 0:
		return strconv.Itoa(minutes) + "m"
	case days == 0:
		return two(hours, "h", minutes%60, "m")
	case days < 10:
		return two(days, "d", hours%24, "h")
	default:
		return strconv.Itoa(days) + "d"
	}
}

// unit is what a countdown of d is rounded to: minutes, from a day on hours.
func unit(d time.Duration) time.Duration {
	if d < 24*time.Hour {
		return time.Minute
	}
	return time.Hour
}

func two(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return strconv.Itoa(a) + unitA
	}
	return strconv.Itoa(a) + unitA + " " + strconv.Itoa(b) + unitB
}

// closeBy is where a countdown begins to show seconds.
const closeBy = 2 * time.Minute

// countdown is the time left: 1:42 below two minutes, rounded up, so that 0:00 is never early; else 12m, rounded to the
// nearest unit, so that what was set to five minutes a moment ago does not read as four.
func countdown(d time.Duration) string {
	if d = max(0, d); d >= closeBy {
		return Duration(d + unit(d)/2)
	}
	s := int((d + time.Second - 1) / time.Second)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// overdue is the time since a deadline: +0:34, later +14m.
func overdue(d time.Duration) string {
	if d = max(0, d); d >= closeBy {
		return "+" + Duration(d)
	}
	s := int(d / time.Second)
	return fmt.Sprintf("+%d:%02d", s/60, s%60)
}

// UTC is an instant for people.
func UTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// TimeOfDay is the time of day of an instant, for sentences about the last minutes.
func TimeOfDay(t time.Time) string { return t.UTC().Format("15:04:05") }

// ISO is an instant for programs, in milliseconds.
func ISO(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Plural is "1 lock" or "2 locks".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + many
}

// Thousands is n with a thin separator: 100,000.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// ClockOff says how far a holder's clock is off; empty when it is not.
func ClockOff(off time.Duration) string {
	switch {
	case off > 0:
		return "clock " + Duration(off) + " ahead"
	case off < 0:
		return "clock " + Duration(-off) + " behind"
	}
	return ""
}
