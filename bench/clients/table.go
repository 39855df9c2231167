package main

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/bench/stats"
)

// table shows all contestants; the first one is what the others are compared with.
func table(all []*contestant) string {
	var b strings.Builder
	b.WriteString("| lock and release | n | p50 ms | p95 ms | ÷ the first | requests | watch msgs | commits |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		n := float64(len(c.took))
		p50, first := stats.Percentile(c.took, 50), stats.Percentile(all[0].took, 50)
		fmt.Fprintf(&b, "| %s | %d | %.1f | %.1f | %s | %.1f | %.1f | %.1f |\n", c.name, len(c.took),
			stats.Milliseconds(p50),
			stats.Milliseconds(stats.Percentile(c.took, 95)), times(float64(p50)/float64(first)), c.counts.Requests/n,
			c.counts.Watches/n,
			c.counts.Commits/n)
	}
	return b.String()
}

// times shows a ratio with two digits.
func times(x float64) string {
	if x < 9.95 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
