package main

import (
	"strings"
	"testing"
	"time"
)

func TestTablesShowTheMeasurements(t *testing.T) {
	cases := []*contender{
		{name: "a", waits: []time.Duration{3 * time.Second, 20 * time.Millisecond, 40 * time.Millisecond},
			cutOff: true, cut: cutResult{kept: true}},
		{name: "b", waits: []time.Duration{9 * time.Second, 10 * time.Second}, cutOff: true,
			cut: cutResult{taken: 10500 * time.Millisecond, noticed: 10 * time.Second}},
		{name: "c"},
	}
	for _, row := range []string{"| a | 3 | 20 ms | 40 ms | 3.0 s |\n", "| b | 2 | 9.0 s | 9.5 s | 10.0 s |\n"} {
		if got := deathTable(cases); !strings.Contains(got, row) {
			t.Errorf("no %q in %s", row, got)
		}
	}
	for _, row := range []string{
		"| a | no | – | the holder still has it |\n",
		"| b | after 10.5 s | after 10.0 s | it is lost |\n",
	} {
		if got := cutTable(30*time.Second, cases); !strings.Contains(got, row) || strings.Contains(got, "| c |") {
			t.Errorf("no %q in %s", row, got)
		}
	}
}
