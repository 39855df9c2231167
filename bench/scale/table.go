package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/bench/stats"
)

// row is a line of the table.
type row struct {
	key, title string
	form       string
	grows      bool // it is a cost, so its growth says something
}

func rows() []row {
	return []row{
		{"load", "load average at the beginning", "%.1f", false},
		{"generated", "locks taken a second, 16 a transaction", "%.0f", false},
		{"store", "etcd's store, bytes per lock", "%.0f", true},
		{"bare", "bare stream read of all keys, s", "%.2f", true},
		{"loaded", "view loaded, s", "%.2f", true},
		{"times bare", "… times the bare read", "%.2f", false},
		{"view bytes", "view, bytes per lock", "%.0f", true},
		{"visible p50", "a change visible at 1000/s, p50 ms", "%.2f", true},
		{"visible p99", "… p99 ms (P6: ≤ 10)", "%.2f", true},
		{"followed", "extensions a second by 64 clients, all seen by the view", "%.0f", false},
		{"behind", "… the last one seen after, ms", "%.1f", false},
		{"waiter memory", "4000 waiters at 200 locks: etcd's memory for each, bytes", "%.0f", false},
		{"served", "… take and release their lock one after the other: a second", "%.0f", false},
		{"unlocker ready", "unlocker ready after, s (≤ 6 at 100,000)", "%.2f", true},
		{"unlocker times bare", "… times a bare read", "%.2f", false},
		{"unlocker memory", "… memory, MiB", "%.0f", true},
		{"unlocker peak", "… most memory ever, with the program itself, MiB (≤ 400 at 100,000)", "%.0f", true},
		{"unlocker idle", "… idle, % of one processor (P6: ≤ 1)", "%.2f", true},
		{"unlocker scrape", "… scrape, p95 ms (≤ 250 at 100,000)", "%.1f", true},
		{"scrape bytes", "… scrape, bytes (P8: ≤ 1 MB)", "%.0f", true},
		{"removal p50", "… one lock removed once the rules allow it, p50 ms", "%.0f", true},
		{"removal p99", "… p99 ms (P5: ≤ 50)", "%.0f", true},
		{"first removal", "… many due at once: first one removed after, ms", "%.0f", true},
		{"removals", "… then removals per second", "%.0f", false},
		{"dashboard ready", "dashboard ready after, s (≤ 6 at 100,000)", "%.2f", true},
		{"dashboard times bare", "… times a bare read", "%.2f", false},
		{"dashboard memory", "… memory, MiB", "%.0f", true},
		{"dashboard peak", "… most memory ever, with the program itself, MiB (≤ 400 at 100,000)", "%.0f", true},
		{"dashboard idle", "… idle, % of one processor (P6: ≤ 1)", "%.2f", true},
		{"dashboard scrape", "… scrape, p95 ms (≤ 250 at 100,000)", "%.1f", true},
		{"page", "… list, p95 ms", "%.1f", true},
		{"page after a change p50", "… list after a change, p50 ms", "%.1f", true},
		{"page after a change", "… p95 ms (≤ 300 at 100,000)", "%.1f", true},
		{"search", "… a new search, p95 ms", "%.1f", true},
		{"lock page", "… a lock's page, p95 ms", "%.1f", true},
		{"leases", "10,000 leases expire at once: keys deleted a second", "%.0f", false},
		{"mass", "10,000 locks expire at once: removed a second by the daemon", "%.0f", false},
		{"mass times", "… times the leases (P4: ≥ 10)", "%.1f", false},
		{"mass daemon", "… processor time of the daemon for each, µs", "%.0f", false},
		{"mass etcd", "… and of etcd", "%.0f", false},
		{"mass beside", "… removed a second while 16 others work", "%.0f", false},
		{"alone p99", "16 others take and release locks: p99 ms alone", "%.1f", false},
		{"beside p99", "… meanwhile", "%.1f", false},
		{"beside times", "… times as long (P4: ≤ 3)", "%.1f", false},
	}
}

// table shows a column for each size, and how each cost grew over all of them: the exponent of the number of locks.
func table(sizes []int, columns []figures) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, n := range sizes {
		fmt.Fprintf(&b, " %d locks |", n)
	}
	fmt.Fprintf(&b, " growth |\n|%s\n", strings.Repeat("---|", len(sizes)+2))
	first := 0
	last := len(sizes) - 1
	for _, r := range rows() {
		if !slices.ContainsFunc(columns, func(f figures) bool { _, measured := f[r.key]; return measured }) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", r.title)
		for _, f := range columns {
			fmt.Fprintf(&b, " "+r.form+" |", f[r.key])
		}
		if a, z := columns[first][r.key], columns[last][r.key]; r.grows && last > first && a > 0 && z > 0 {
			fmt.Fprintf(&b, " %.2f |\n", stats.Growth(float64(sizes[first]), a, float64(sizes[last]), z))
		} else {
			b.WriteString(" |\n")
		}
	}
	return b.String()
}
