package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/cli"
)

func TestCutTextFitsItsColumns(t *testing.T) {
	for _, s := range []string{"a", "漢字漢字漢字漢字", "a漢b漢c漢d漢", "e\u0301e\u0301e\u0301", strings.Repeat("x", 40)} {
		if clipped := cli.Clip(s, 10); cli.Columns(clipped) > 10 {
			t.Errorf("%q cut to 10 columns is %q, which has %d", s, clipped, cli.Columns(clipped))
		}
	}
}

func TestABacktraceKeepsItsLinesAndIndents(t *testing.T) {
	got := cli.Lines("main.go:12 in main.run\n\tmain.go:3 in main.main\r\n  \x1b[2J\n\n")
	want := []string{"main.go:12 in main.run", `    main.go:3 in main.main\r`, `  \x1b[2J`}
	if !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
}

func TestTimesAreWrittenAsPeopleReadThem(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration][2]string{
		0:                           {"0s", "0s ago"},
		-42 * time.Second:           {"42s", "42s ago"},
		-12 * time.Minute:           {"12m", "12m ago"},
		-190 * time.Minute:          {"3h 10m", "3h 10m ago"},
		-52 * time.Hour:             {"2d 4h", "2d 4h ago"},
		500 * time.Millisecond:      {"0s", "in 0:01"},
		101*time.Second + 1:         {"in 1:42", "in 1:42"},
		119*time.Second + 1:         {"in 2:00", "in 2:00"},
		2 * time.Minute:             {"in 2m", "in 2m"},
		26 * time.Hour:              {"in 1d 2h", "in 1d 2h"},
		-200 * 365 * 24 * time.Hour: {"73000d 0h", "73000d 0h ago"},
	} {
		if got := [2]string{cli.Age(now.Add(d), now), cli.Relative(now.Add(d), now)}; got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := cli.Age(time.Time{}, now) + cli.Relative(time.Time{}, now); got != "--" {
		t.Errorf("an unknown time is %q", got)
	}
}
