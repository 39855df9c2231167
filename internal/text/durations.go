package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Elapsed time is rounded down, and time left to the nearest unit, so that five minutes do not show as four a moment
// later. app.js follows the same rules.

const day = 24 * time.Hour

// SecondsBelow is the remaining time below which a countdown shows seconds.
const SecondsBelow = 2 * time.Minute

// Duration formats d in at most two units: 42s, 14m, 3h 10m, 2d 4h, 12d. It is rounded down; a negative one is 0s.
func Duration(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return twoUnits(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	case d < 10*day:
		return twoUnits(d/day, "d", d%day/time.Hour, "h")
	}
	return fmt.Sprintf("%dd", d/day)
}

func twoUnits(a time.Duration, unitA string, b time.Duration, unitB string) string {
	s := strconv.FormatInt(int64(a), 10) + unitA
	if b == 0 {
		return s
	}
	return s + " " + strconv.FormatInt(int64(b), 10) + unitB
}

// Countdown formats the time left: below two minutes as 1:42, rounded up so that 0:00 is never early; otherwise like
// [Duration], rounded to the nearest unit.
func Countdown(d time.Duration) string {
	switch {
	case d >= day:
		return Duration(d.Round(time.Hour))
	case d >= SecondsBelow:
		return Duration(d.Round(time.Minute))
	}
	return minutesSeconds(max(0, d) + time.Second - 1)
}

// Overdue formats the time since a deadline: +0:34, later +14m.
func Overdue(d time.Duration) string {
	if d >= SecondsBelow {
		return "+" + Duration(d)
	}
	return "+" + minutesSeconds(max(0, d))
}

func minutesSeconds(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", d/time.Minute, d%time.Minute/time.Second)
}

// FlagDuration formats d as a command line takes it, without trailing zero units: "45m", "1h30m".
func FlagDuration(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

// Age formats how long ago t was, or that t is more than a second ahead; empty for the zero time.
func Age(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now.Add(time.Second)):
		return Relative(t, now)
	}
	return Duration(now.Sub(t))
}

// Relative formats t relative to now: "in 1:42", "14m ago"; empty for the zero time.
func Relative(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return "in " + Countdown(t.Sub(now))
	}
	return Duration(now.Sub(t)) + " ago"
}

// DurationWords formats d for a sentence, in the largest unit of which there are at least two: "3 minutes". It rounds
// down.
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

// RelativeWords formats t relative to now for a sentence: "in 3 minutes", "3 minutes ago", "just now".
func RelativeWords(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d.Abs() < time.Second:
		return "just now"
	case d > 0:
		return "in " + DurationWords(roundToUnit(d))
	}
	return DurationWords(-d) + " ago"
}

// roundToUnit rounds the time left to the unit that [DurationWords] uses.
func roundToUnit(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{day, time.Hour, time.Minute} {
		if d.Round(time.Second) >= 2*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

// Count returns "1 lock", "2 locks" or "2 processes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Thousands returns n with separators: 100,000.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
