package pages

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

// chartRow is an interval in the table that says the same as the chart.
type chartRow struct {
	Lane, URL  string
	Who        string
	What       string
	From, Till time.Time
	Length     string
}

const maxChartRows = 100

// barTitle returns a bar in words: "billing on vm:17: 3m from 2026-11-21 12:00:03 UTC, released".
func (d *chartBuilder) barTitle(b *timeline.Bar) string {
	said := processName(b.Interval) + ": " + d.length(b.Interval) + " from " + app.UTC(b.Begin) + ", " +
		outcomeText(b.Interval)
	if !b.LateSince(d.at.AsOf).IsZero() {
		said += ", past its alert"
	}
	if b.N > 1 {
		said = text.Thousands(b.N) + " in a row, the longest by " + said
		if b.Ended != "" {
			said += "; at least one was " + locks.EndedWord(b.Ended)
		}
	}
	return said
}

// length returns how long a hold or wait lasted, or has lasted so far.
func (d *chartBuilder) length(i *timeline.Interval) string {
	length := text.Duration(cmp.Or(i.End, d.at.AsOf).Sub(i.Begin))
	if i.BeginUnknown {
		return "at least " + length
	}
	return length
}

func processName(i *timeline.Interval) string {
	return processText(i.Owner, i.Host, i.PID).String()
}

// fillRows adds the chart as a table: current intervals first, then the latest to end.
func (v *chart) fillRows(d *chartBuilder, all []timeline.Lane) {
	var rows []*timeline.Interval
	for n := range all {
		rows = append(rows, all[n].All...)
	}
	slices.SortStableFunc(rows, func(a, b *timeline.Interval) int {
		return cmp.Or(b.End, d.at.AsOf).Compare(cmp.Or(a.End, d.at.AsOf))
	})
	v.MoreRows = max(0, len(rows)-maxChartRows)
	for _, i := range rows[:len(rows)-v.MoreRows] {
		row := chartRow{Lane: text.Clip(i.Lock, app.MaxNameShown), Who: processName(i), What: outcomeText(i),
			From: i.Begin, Till: i.End, Length: d.length(i)}
		if !i.Wait {
			row.URL = d.p.app.URLs.Lock(i.Name, i.HistoryID())
		}
		v.Rows = append(v.Rows, row)
	}
}

// outcomeText returns in a word how a hold or wait stands or ended.
func outcomeText(i *timeline.Interval) string {
	switch {
	case i.Wait && i.End.IsZero():
		return "waits"
	case i.Wait && i.Acquired:
		return "waited, got it"
	case i.Wait:
		return "waited, gave up"
	case i.Dead:
		return "holds, but is dead"
	case i.End.IsZero():
		return "holds"
	}
	return locks.EndedWord(i.Ended)
}
