package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/stats"
)

// deathTable shows how long waiters waited after a kill.
func deathTable(cases []*contender) string {
	var b strings.Builder
	b.WriteString("### From kill -9 of the holder until the waiter has the lock\n\n")
	b.WriteString("| | rounds | least | median | most |\n|---|---|---|---|---|\n")
	for _, c := range cases {
		if len(c.waits) == 0 {
			continue
		}
		var seconds []float64
		for _, d := range c.waits {
			seconds = append(seconds, d.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s |\n", c.name, len(c.waits), show(slices.Min(c.waits)),
			show(time.Duration(stats.Median(seconds)*float64(time.Second))), show(slices.Max(c.waits)))
	}
	return b.String()
}

// cutTable shows who loses a lock although its holder lives.
func cutTable(length time.Duration, cases []*contender) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### A living holder is cut off for %v\n\n", length)
	b.WriteString("| | a second client gets its lock | the holder learns of it | and afterwards |\n|---|---|---|---|\n")
	for _, c := range cases {
		if !c.cutOff {
			continue
		}
		afterwards := "it is lost"
		if c.cut.kept {
			afterwards = "the holder still has it"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.name, after(c.cut.taken, "no"),
			after(c.cut.noticed, "–"), afterwards)
	}
	return b.String()
}

// after shows a time since the cut.
func after(d time.Duration, never string) string {
	if d == 0 {
		return never
	}
	return "after " + show(d)
}

func show(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
