package text_test

import (
	"math"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
)

const day = 24 * time.Hour

func TestTimesAreWrittenAsPeopleReadThem(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration][2]string{
		0:                           {"0s", "0s ago"},
		-42 * time.Second:           {"42s", "42s ago"},
		-12 * time.Minute:           {"12m", "12m ago"},
		-190 * time.Minute:          {"3h 10m", "3h 10m ago"},
		-3 * time.Hour:              {"3h", "3h ago"},
		-52 * time.Hour:             {"2d 4h", "2d 4h ago"},
		500 * time.Millisecond:      {"0s", "in 0:01"},
		101*time.Second + 1:         {"in 1:42", "in 1:42"},
		119*time.Second + 1:         {"in 2:00", "in 2:00"},
		2 * time.Minute:             {"in 2m", "in 2m"},
		5*time.Minute - time.Second: {"in 5m", "in 5m"},
		26 * time.Hour:              {"in 1d 2h", "in 1d 2h"},
		10*day - time.Minute:        {"in 10d", "in 10d"},
		-200 * 365 * day:            {"73000d", "73000d ago"},
		math.MaxInt64:               {"in 106751d", "in 106751d"},
	} {
		if got := [2]string{text.Age(now.Add(d), now), text.Relative(now.Add(d), now)}; got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := text.Age(time.Time{}, now) + text.Relative(time.Time{}, now); got != "" {
		t.Errorf("an unknown time is %q", got)
	}
}

func TestTimeSinceADeadlineCountsSecondsAtFirst(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "+0:00", 34*time.Second + 999*time.Millisecond: "+0:34", 119 * time.Second: "+1:59",
		2 * time.Minute: "+2m", 14*time.Minute + 59*time.Second: "+14m",
	} {
		if got := text.Overdue(d); got != want {
			t.Errorf("%v late is %q, want %q", d, got, want)
		}
	}
}

func TestTimesInSentences(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		999 * time.Millisecond:         "just now",
		-999 * time.Millisecond:        "just now",
		-time.Second:                   "1 second ago",
		-119 * time.Second:             "119 seconds ago",
		-179 * time.Second:             "2 minutes ago",
		5*time.Minute - time.Second:    "in 5 minutes",
		47*time.Hour + 50*time.Minute:  "in 2 days",
		-47*time.Hour - 50*time.Minute: "47 hours ago",
		48 * time.Hour:                 "in 2 days",
	} {
		if got := text.RelativeWords(now.Add(d), now); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
