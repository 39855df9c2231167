package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/stats"
)

// table shows a workload: medians over the rounds, and the ratios round by round.
func table(w contest.Work, contestants []contest.Contestant, turns []contest.Turn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", title(w))
	head := []string{"", "a second", "least–most", "ours ÷ it", "p10 ms", "p50 ms", "p99 ms", "requests",
		"watch msgs", "watch answers", "commits", "server CPU µs", "client CPU µs",
		"client allocs"}
	if w.Contend {
		head = append(head, "Jain", "served", "violations", "idle between two holders, ms")
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	ourRates := rates(w, contest.Of(turns, us))
	for _, c := range contestants {
		own := contest.Of(turns, c.Name)
		if len(own) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row(w, c.Name, own, ourRates), " | "))
	}
	return b.String()
}

// done is a workload and its results.
type done struct {
	work  contest.Work
	turns []contest.Turn
}

// summary shows all workloads in one table of ratios: how many times as much ours does in the same time.
func summary(contestants []contest.Contestant, all []done) string {
	var b strings.Builder
	b.WriteString("### Ours ÷ it, in all workloads\n\n| |")
	for _, d := range all {
		fmt.Fprintf(&b, " %s |", short(d.work))
	}
	fmt.Fprintf(&b, "\n|%s\n", strings.Repeat("---|", len(all)+1))
	for _, c := range contestants {
		fmt.Fprintf(&b, "| %s |", c.Name)
		for _, d := range all {
			own := rates(d.work, contest.Of(d.turns, us))
			them := rates(d.work, contest.Of(d.turns, c.Name))
			fmt.Fprintf(&b, " %s |", ratio(stats.Median(stats.Ratios(own, them))))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func short(w contest.Work) string {
	switch {
	case w.Contend:
		return fmt.Sprintf("hand-over, %d", w.Clients)
	case w.Clients == 1:
		return "one client"
	}
	return fmt.Sprintf("%d clients", w.Clients)
}

func title(w contest.Work) string {
	switch {
	case w.Contend:
		return fmt.Sprintf("Hand-over, %d waiters", w.Clients)
	case w.Clients == 1:
		return "Latency, one client, nobody else"
	}
	return fmt.Sprintf("Throughput, %d clients, each on a lock of its own", w.Clients)
}

func row(w contest.Work, name string, own []contest.Turn, ourRates []float64) []string {
	all := rates(w, own)
	least, most := stats.Spread(all)
	cells := []string{
		name, number(stats.Median(all)), number(least) + "–" + number(most),
		ratio(stats.Median(stats.Ratios(ourRates, all))),
		number(median(own, func(t contest.Turn) float64 { return t.P10 })),
		number(median(own, func(t contest.Turn) float64 { return t.P50 })),
		number(median(own, func(t contest.Turn) float64 { return t.P99 })),
	}
	for _, count := range []func(contest.Counters) float64{
		func(c contest.Counters) float64 { return c.Requests }, func(c contest.Counters) float64 { return c.Watches },
		func(c contest.Counters) float64 { return c.Told }, func(c contest.Counters) float64 { return c.Commits },
		func(c contest.Counters) float64 { return c.CPU * 1e6 },
	} {
		cells = append(cells, number(each(own, count)))
	}
	cells = append(cells, number(median(own,
		func(t contest.Turn) float64 { return t.ClientCPU * 1e6 / float64(t.Done) })),
		number(median(own, func(t contest.Turn) float64 { return t.Allocs / float64(t.Done) })))
	if w.Contend {
		violations := 0
		for _, t := range own {
			violations += t.Violations
		}
		cells = append(cells,
			ratio(median(own, func(t contest.Turn) float64 { return t.Jain })),
			number(median(own, func(t contest.Turn) float64 { return float64(t.Served) })), fmt.Sprint(violations),
			number(median(own, func(t contest.Turn) float64 { return t.Idle(w.Hold) })))
	}
	return cells
}

func rates(w contest.Work, turns []contest.Turn) (all []float64) {
	for _, t := range turns {
		all = append(all, t.Rate(w.Contend))
	}
	return all
}

func median(turns []contest.Turn, of func(contest.Turn) float64) float64 {
	var xs []float64
	for _, t := range turns {
		if x := of(t); !math.IsNaN(x) {
			xs = append(xs, x)
		}
	}
	return stats.Median(xs)
}

// each is a count of the server for one lock and unlock.
func each(turns []contest.Turn, count func(contest.Counters) float64) float64 {
	return median(turns, func(t contest.Turn) float64 {
		if t.Server == nil || t.Done == 0 {
			return math.NaN()
		}
		return count(*t.Server) / float64(t.Done)
	})
}

func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func ratio(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fmt.Sprintf("%.3g", x)
}
