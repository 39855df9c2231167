package main

import (
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/bench/servers"
)

func TestTableComparesWithTheFirst(t *testing.T) {
	times := func(ms ...int) (took []time.Duration) {
		for _, n := range ms {
			took = append(took, time.Duration(n)*time.Millisecond)
		}
		return took
	}
	got := table([]*contestant{
		{name: "a", took: times(1, 2, 3, 40), counts: servers.EtcdCounts{Requests: 8, Commits: 8}},
		{name: "b", took: times(50, 50), counts: servers.EtcdCounts{Requests: 5, Watches: 2, Commits: 4}},
	})
	want := `| lock and release | n | p50 ms | p95 ms | ÷ the first | requests | watch msgs | commits |
|---|---|---|---|---|---|---|---|
| a | 4 | 2.0 | 40.0 | 1.0 | 2.0 | 0.0 | 2.0 |
| b | 2 | 50.0 | 50.0 | 25 | 2.5 | 1.0 | 2.0 |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTimesAreCountedAndParsed(t *testing.T) {
	got, err := parse(" 1500 20\n", 2)
	if want := []time.Duration{1500 * time.Microsecond, 20 * time.Microsecond}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, line := range []string{"", "1500", "1500 x", "1500 0", "1 2 3"} {
		if got, err := parse(line, 2); err == nil {
			t.Errorf("%q was read as %v", line, got)
		}
	}
}
