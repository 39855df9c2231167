package pages

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// chartRow is an interval in the table that says the same as the chart.
type chartRow struct {
	Lane, URL  string
	Who        string
	What       string
	From, Till time.Time
	Length     string
}

// maxChartRows is how many rows the table has.
const maxChartRows = 100

// barTitle is a bar in words.
func (d *chartBuilder) barTitle(b *timeline.Bar) string {
	if b.N > 1 {
		what := " holds "
		if b.Wait {
			what = " waits "
		}
		said := text.Thousands(b.N) + what + d.during(b.From, b.To) + ", the longest by " + processName(b.Interval)
		if b.Ended != "" {
			words, _ := metadata.EndingWordsFor(b.Ended)
			said += "; at least one was " + words.Verb
		}
		return said
	}
	return processName(b.Interval) + " " + d.describe(b.Interval)
}

// processName names the process that held or waited.
func processName(i *timeline.Interval) string {
	return processText(i.Owner, i.Host, i.PID).String()
}

// describe says how a hold or wait stands or ended: "held it for 3m, from 12:00:03 to 12:03:04 UTC, and was late".
func (d *chartBuilder) describe(i *timeline.Interval) string {
	lasts := i.End.IsZero()
	var said string
	switch {
	case i.Wait && lasts:
		said = "waits"
	case i.Wait:
		said = "waited"
	case lasts:
		said = "holds " + heldName(i)
	default:
		said = "held " + heldName(i)
	}
	now := d.at
	if lasts {
		said += " since " + d.clock(i.Begin) + " UTC, for " + text.Duration(now.AsOf.Sub(i.Begin))
	} else {
		said += " for " + text.Duration(i.End.Sub(i.Begin)) + ", " + d.during(i.Begin, i.End)
	}
	if late := i.LateSince(now.AsOf); !late.IsZero() {
		said += ", past its alert at " + d.clock(late)
	}
	words, known := metadata.EndingWordsFor(i.Ended)
	switch {
	case i.Wait && !i.Acquired && !lasts:
		said += ", and gave up"
	case i.Ended != "" && i.Ended != metadata.EndingReleased && known:
		said += ", and was " + words.Verb
	}
	return said
}

// heldName names the share that a hold has; the name of the lock is beside it already.
func heldName(i *timeline.Interval) string {
	if i.Name == i.Lock {
		return "it"
	}
	return text.Visible(text.Clip(i.Name, app.MaxNameShown))
}

func (d *chartBuilder) during(from, to time.Time) string {
	return "from " + d.clock(from) + " to " + d.clock(to) + " UTC"
}

// clock is the time of day, with the date if that is another one than at the right edge.
func (d *chartBuilder) clock(t time.Time) string {
	if t.UTC().YearDay() != d.span.To.UTC().YearDay() {
		return t.UTC().Format(time.DateTime)
	}
	return app.TimeOfDay(t)
}

// fillRows adds the chart as a table: current intervals first, then the latest to end.
func (v *chart) fillRows(d *chartBuilder, all []timeline.Lane) {
	type row struct {
		lane *timeline.Lane
		*timeline.Interval
	}
	var rows []row
	for n := range all {
		for _, i := range all[n].All {
			rows = append(rows, row{&all[n], i})
		}
	}
	end := func(r row) time.Time {
		if r.End.IsZero() {
			return d.at.AsOf
		}
		return r.End
	}
	slices.SortStableFunc(rows, func(a, b row) int { return end(b).Compare(end(a)) })
	v.MoreRows = max(0, len(rows)-maxChartRows)
	for _, r := range rows[:len(rows)-v.MoreRows] {
		view := chartRow{Lane: text.Clip(r.Lock, app.MaxNameShown), Who: processName(r.Interval),
			From: r.Begin, Till: r.End,
			What: outcome(r.Interval), Length: text.Duration(end(r).Sub(r.Begin))}
		if !r.Wait {
			view.URL = d.p.app.URLs.Lock(r.Name, r.HistoryID())
		}
		v.Rows = append(v.Rows, view)
	}
}

// outcome says in a word how a hold or wait stands or ended.
func outcome(i *timeline.Interval) string {
	switch {
	case i.Wait && i.End.IsZero():
		return "waits"
	case i.Wait && i.Acquired:
		return "waited, got it"
	case i.Wait:
		return "waited, gave up"
	case i.End.IsZero():
		return "holds"
	}
	return locks.EndedWord(i.Ended)
}
