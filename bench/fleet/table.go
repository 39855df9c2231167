package main

import (
	"fmt"
	"strings"
	"time"
)

// row is a line of the table.
type row struct {
	title string
	text  func(outcome) string
}

const mebi = 1 << 20

func rows() []row {
	return []row{
		{"locks", func(o outcome) string { return fmt.Sprint(o.locks) }},
		{"… if a hash places the segments, × the mean", func(o outcome) string {
			return fmt.Sprintf("%.2f", o.hashed)
		}},
		{"requests a second", func(o outcome) string { return fmt.Sprintf("%.0f", o.perSecond) }},
		{"share of its throughput", func(o outcome) string { return fmt.Sprintf("%.2f", o.usual.use) }},
		{"answer, p50 ms", func(o outcome) string { return o.answer(o.usual.p50) }},
		{"… p99 ms", func(o outcome) string { return o.answer(o.usual.p99) }},
		{"… longest, ms", func(o outcome) string { return o.answer(o.usual.worst) }},
		{"after an outage, caught up within s", func(o outcome) string { return seconds(o.back) }},
		{"clients connected", func(o outcome) string { return fmt.Sprint(o.connections) }},
		{"etcd's store, MiB", func(o outcome) string { return fmt.Sprint(o.store / mebi) }},
		{"etcd's memory, MiB", func(o outcome) string { return fmt.Sprint(o.memory / mebi) }},
		{"unlocker: memory, MiB", func(o outcome) string { return fmt.Sprint(o.unlocker / mebi) }},
		{"… ready after a start, s", func(o outcome) string { return seconds(o.start) }},
		{"over the limit", outcome.exceeds},
	}
}

// exceeds names the limits that are exceeded.
func (o outcome) exceeds() string {
	if len(o.over) == 0 {
		return "–"
	}
	return strings.Join(o.over, ", ")
}

// answer is the time of an answer. A cluster that cannot keep up makes its clients wait for ever longer.
func (o outcome) answer(d time.Duration) string {
	if o.usual.use >= 1 {
		return "grows"
	}
	return fmt.Sprintf("%.1f", d.Seconds()*1000)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// table shows the fullest cluster, with a column for each number of clusters.
func table(sizes []int, columns []outcome) string {
	var b strings.Builder
	b.WriteString("| the fullest of … clusters |")
	for _, n := range sizes {
		fmt.Fprintf(&b, " %d |", n)
	}
	fmt.Fprintf(&b, "\n|%s\n", strings.Repeat("---|", len(sizes)+1))
	for _, r := range rows() {
		fmt.Fprintf(&b, "| %s |", r.title)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", r.text(c))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
