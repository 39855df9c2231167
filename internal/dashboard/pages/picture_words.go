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

// wordsView is an interval in words.
type wordsView struct {
	Lane, URL  string
	Who        string
	What       string
	From, Till string
	Took       string
}

// maxTable is how many rows the table has.
const maxTable = 100

// title is a bar in words.
func (d *drawing) title(b *timeline.Bar) string {
	if b.N > 1 {
		what := " holds "
		if b.Wait {
			what = " waits "
		}
		said := text.Thousands(b.N) + what + d.during(b.From, b.To) + ", the longest by " + who(b.Interval)
		if b.Ended != "" {
			words, _ := metadata.EndingWordsFor(b.Ended)
			said += "; at least one was " + words.Verb
		}
		return said
	}
	return who(b.Interval) + " " + d.did(b.Interval)
}

// who is who held or waited.
func who(i *timeline.Interval) string {
	return process(i.Owner, i.Host, i.PID).String()
}

// did is what became of a hold or a wait: "held it for 3m, from 12:00:03 to 12:03:04 UTC, and was late".
func (d *drawing) did(i *timeline.Interval) string {
	lasts := i.End.IsZero()
	var said string
	switch {
	case i.Wait && lasts:
		said = "waits"
	case i.Wait:
		said = "waited"
	case lasts:
		said = "holds " + what(i)
	default:
		said = "held " + what(i)
	}
	now := d.at
	if lasts {
		said += " since " + d.clock(i.Begin) + " UTC, for " + text.Duration(now.AsOf.Sub(i.Begin))
	} else {
		said += " for " + text.Duration(i.End.Sub(i.Begin)) + ", " + d.during(i.Begin, i.End)
	}
	if late := i.Late(now.AsOf); !late.IsZero() {
		said += ", past its alert at " + d.clock(late)
	}
	words, known := metadata.EndingWordsFor(i.Ended)
	switch {
	case i.Wait && !i.Taken && !lasts:
		said += ", and gave up"
	case i.Ended != "" && i.Ended != metadata.EndingReleased && known:
		said += ", and was " + words.Verb
	}
	return said
}

// what is the share that a hold has; the lock itself has its name beside it.
func what(i *timeline.Interval) string {
	if i.Name == i.Lock {
		return "it"
	}
	return text.Visible(text.Clip(i.Name, app.MaxNameShown))
}

func (d *drawing) during(from, to time.Time) string {
	return "from " + d.clock(from) + " to " + d.clock(to) + " UTC"
}

// clock is the time of day, with the date if that is another one than at the right edge.
func (d *drawing) clock(t time.Time) string {
	if t.UTC().YearDay() != d.span.To.UTC().YearDay() {
		return t.UTC().Format(time.DateTime)
	}
	return app.TimeOfDay(t)
}

// table is the picture in words: what lasts or ended last is first.
func (v *picture) table(d *drawing, all []timeline.Lane) {
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
	v.Cut = max(0, len(rows)-maxTable)
	for _, r := range rows[:len(rows)-v.Cut] {
		view := wordsView{Lane: text.Clip(r.Lock, app.MaxNameShown), Who: who(r.Interval), From: d.clock(r.Begin),
			What: whatBecame(r.Interval), Took: text.Duration(end(r).Sub(r.Begin))}
		if !r.End.IsZero() {
			view.Till = d.clock(r.End)
		}
		if !r.Wait {
			view.URL = d.p.app.URLs.Lock(r.Name, r.HistoryID())
		}
		v.Table = append(v.Table, view)
	}
}

// whatBecame is a hold or a wait in a word.
func whatBecame(i *timeline.Interval) string {
	switch {
	case i.Wait && i.End.IsZero():
		return "waits"
	case i.Wait && i.Taken:
		return "waited, got it"
	case i.Wait:
		return "waited, gave up"
	case i.End.IsZero():
		return "holds"
	}
	return locks.EndedWord(i.Ended)
}
