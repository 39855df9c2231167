package pages

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

// chart is the timeline as drawn: a lane for each lock or process, time to the right, now at the edge.
type chart struct {
	Windows  []Link
	Lanes    []laneView
	More     int // lanes that are left out
	Ticks    []tickView
	Rows     []chartRow
	MoreRows int    // rows that are left out
	JSON     string // all of it, for programs
	Note     string
	Unknown  []chartRange // about which nothing is known
}

// laneView is a lane: its label and its drawing. Places across are percentages, places down are pixels.
type laneView struct {
	Name, URL string
	Note      string // who holds it, and how long was waited for it
	Height    int
	Bars      []barView
}

type chartRange struct{ X, Width string }

// barView is a hold, a wait, or several of them.
type barView struct {
	chartRange
	Y, Height int
	URL       string // of a hold
	Title     string
	Late      chartRange
	Label     chartLabel // its owner
	Mark      chartLabel // the icon of how it ended
	End       string     // where the mark is
}

// chartLabel is what fits into a chart on a large screen. WideOnly says that it does not on a phone.
type chartLabel struct {
	Text     string
	WideOnly bool
}

type tickView struct {
	X     string
	At    time.Time
	Label chartLabel
}

// chartBuilder has what all lanes of a chart are drawn with.
type chartBuilder struct {
	p      *Pages
	at     app.Viewpoint
	byLock bool // a lane is a lock
}

// The geometry, in pixels.
const (
	lineHeight = 3
	lineStep   = 4
	barHeight  = 16
	barStep    = 18
	minLane    = 24

	// the least width of a chart on a large screen, and on a phone
	wide, narrow = 750., 290.

	glyph     = 6.6
	markWidth = 18.
	tickRoom  = 42. // half a time, and "now"

	maxBars = 1200 // that are drawn: more would not be told apart, and make the page slow
)

func (d *chartBuilder) build(r *app.Request, past *Timeline, options timeline.Options) *chart {
	options.Span = timeline.Span{From: past.From, To: r.Now}
	options.Bars = maxBars
	options.AsOf = d.at.AsOf
	options.Unknown = r.UnwatchedSpans()
	laid := timeline.NewChart(past.All, options)
	v := &chart{More: laid.More, Ticks: ticks(options.Span)}
	if past.IncompleteBefore.After(past.From) {
		v.Note = "Short holds and waits before " + app.UTC(past.IncompleteBefore) + " may be missing: " +
			"only the longest " + text.Thousands(timeline.MaxIntervals) + " are remembered."
	}
	for n := range laid.Lanes {
		v.Lanes = append(v.Lanes, d.lane(&laid.Lanes[n]))
	}
	for _, s := range laid.Unknown {
		v.Unknown = append(v.Unknown, visible(s))
	}
	v.fillRows(d, laid.Lanes)
	return v
}

// lane draws a lane: the lines of waits, below them the bars of holds.
func (d *chartBuilder) lane(l *timeline.Lane) laneView {
	v := laneView{Name: processName(l.All[0]), Note: d.note(l)}
	if d.byLock {
		v.Name = text.Clip(l.Name, app.MaxNameShown)
		v.URL = d.p.app.URLs.Lock(l.Name, "")
	}
	y := 2
	for _, row := range l.WaitRows {
		for n := range row {
			v.Bars = append(v.Bars, d.bar(&row[n], y, lineHeight))
		}
		y += lineStep
	}
	if len(l.WaitRows) > 0 {
		y += 2
	}
	for _, row := range l.HoldRows {
		marked := 0. // the end of the last mark
		for n := range row {
			bar := d.bar(&row[n], y, barHeight)
			bar.addHold(d, &row[n], marked)
			if bar.Mark.Text != "" {
				marked = row[n].X + row[n].Width
			}
			v.Bars = append(v.Bars, bar)
		}
		y += barStep
	}
	v.Height = max(minLane, y+2)
	return v
}

// note returns who holds a lock and how long was waited for it, or what a process does now.
func (d *chartBuilder) note(l *timeline.Lane) string {
	said := ""
	switch {
	case len(l.Holders) > 1 && d.byLock:
		said = text.Thousands(len(l.Holders)) + " hold it"
	case len(l.Holders) > 0 && d.byLock:
		said = "held by " + text.Visible(cmp.Or(l.Holders[0].Owner, "unknown"))
	case len(l.Holders) > 0:
		said = "holds it"
	case l.HasWaiters && !d.byLock:
		said = "waits"
	}
	notes := []string{said}
	if l.TimeWaited >= time.Second && d.byLock {
		notes = append(notes, "waited "+text.Duration(l.TimeWaited))
	}
	if l.Undrawn > 0 {
		notes = append(notes, text.Thousands(l.Undrawn)+" more not drawn")
	}
	return strings.Join(nonEmpty(notes...), ", ")
}

// bar draws a hold, a wait, or several that are too short to be told apart.
func (d *chartBuilder) bar(b *timeline.Bar, y, height int) barView {
	return barView{chartRange: visible(b.PercentRange), Y: y, Height: height, Title: d.barTitle(b)}
}

// addHold adds what only holds have. Its label is left of the stripes and of the mark; marks do not cover each other:
// the last one before this ends at marked.
func (v *barView) addHold(d *chartBuilder, b *timeline.Bar, marked float64) {
	v.URL = d.p.app.URLs.Lock(b.Name, b.HistoryID())
	room := b.Width
	if b.Late.Width > 0 {
		room = b.Late.X - b.X
		v.Late = visible(b.Late)
	}
	if b.N == 1 && d.byLock {
		owner := text.Visible(b.Owner)
		v.Label = fit(owner, float64(utf8.RuneCountInString(owner))*glyph+markWidth, room)
	}
	if b.Ended != "" {
		v.Mark = fit(app.EndedIcon(locks.EndedWord(b.Ended)), markWidth, b.X+b.Width-marked)
		v.End = percentage(b.X + b.Width)
	}
}

// fit returns a label of a width in pixels for a place of a width in percent: none if it does not fit.
func fit(text string, width, room float64) chartLabel {
	if width > room/100*wide {
		return chartLabel{}
	}
	return chartLabel{text, width > room/100*narrow}
}

// visible returns a stretch that is wide enough to be seen.
func visible(s timeline.PercentRange) chartRange {
	width := max(s.Width, timeline.MinBarWidth)
	return chartRange{percentage(min(s.X, 100-width)), percentage(width)}
}

func percentage(f float64) string {
	return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) + "%"
}

// ticks returns the times that the axis names: those that leave room for "now" at its end.
func ticks(s timeline.Span) (marks []tickView) {
	whole := s.To.Sub(s.From)
	step := 5 * time.Minute
	for _, longer := range []time.Duration{10 * time.Minute, time.Hour, 4 * time.Hour} {
		if whole/step > 6 {
			step = longer
		}
	}
	for t := s.From.Truncate(step).Add(step); t.Before(s.To); t = t.Add(step) {
		x := s.PercentOf(s.From, t).Width
		marks = append(marks, tickView{percentage(x), t, fit(t.UTC().Format("15:04"), tickRoom, min(x, 100-x))})
	}
	return marks
}
