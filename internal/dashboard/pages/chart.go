package pages

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

// chart is the timeline as drawn: a lane for each lock or process, time to the right, now at the edge.
type chart struct {
	Windows    []Link
	Lanes      []laneView
	More       int // lanes that are left out
	Ticks      []tickView
	Now        string
	Owners     []ownerKey
	Rows       []chartRow
	MoreRows   int    // rows that are left out
	JSON       string // all of it, for programs
	Notes      []string
	Unknown    []stretchView // about which nothing is known
	UnknownNow []stretchView // the last of Unknown if it still goes on: drawn over everything
}

// laneView is a lane: its label and its drawing. Places across are percentages, places down are pixels.
type laneView struct {
	Name, URL string
	Note      string // what was lost in it
	Height    int
	Bars      []barView
	Overflow  []overflowView
}

type stretchView struct{ X, Width string }

// barView is a hold, a wait, or several of them.
type barView struct {
	stretchView
	Y, Height int
	Class     string // of its owner
	URL       string
	Title     string
	Late      stretchView
	Mark      string // icon of how it ended
	End       string // where it is
	MarkY     int
	Text      string
	WideOnly  bool // Text does not fit a phone
}

// overflowView is a count of bars for which there is no row.
type overflowView struct {
	X, Text, Title string
	Y              int
}

type tickView struct{ X, Text string }

type ownerKey struct{ Class, Name string }

// chartBuilder has what all lanes of a chart are drawn with.
type chartBuilder struct {
	p       *Pages
	span    timeline.Span
	at      app.Viewpoint
	colours map[string]int
	byLock  bool // a lane is a lock
}

// The geometry, in pixels.
const (
	lineHeight     = 3
	lineStep       = 4
	barHeight      = 16
	thinBar        = 10 // where several hold a lock
	overflowHeight = 12
	minLane        = 24

	// text of a bar is written where it fits a chart of this width, and the other one on a phone
	wide, narrow = 900., 330.
	glyph        = 6.6

	maxBars = 1200 // that are drawn: more would not be told apart, and make the page slow

	colours = 8
)

func (d *chartBuilder) build(all []timeline.Interval, options timeline.Options) *chart {
	options.Span = d.span
	options.Bars = maxBars
	options.AsOf = d.at.AsOf
	laid := timeline.NewChart(all, options)
	v := &chart{More: laid.More, Ticks: ticks(d.span), Now: "now " + d.span.To.UTC().Format("15:04")}
	d.assignColours(laid.Lanes, v)
	for n := range laid.Lanes {
		v.Lanes = append(v.Lanes, d.lane(&laid.Lanes[n]))
	}
	for _, s := range laid.Unknown {
		v.Unknown = append(v.Unknown, at(s))
	}
	if n := len(v.Unknown); n > 0 && d.at.Stale { // the last one goes on
		v.UnknownNow = v.Unknown[n-1:]
	}
	v.fillRows(d, laid.Lanes)
	return v
}

// assignColours gives each owner in the chart a colour: by its name, so that it seldom changes, and another one than
// the others have, while there are any.
func (d *chartBuilder) assignColours(all []timeline.Lane, v *chart) {
	d.colours = map[string]int{}
	var owners []string
	for n := range all {
		for _, i := range all[n].All {
			if _, known := d.colours[i.Owner]; !known {
				d.colours[i.Owner] = 0
				owners = append(owners, i.Owner)
			}
		}
	}
	slices.Sort(owners)
	taken := [colours]int{}
	for n, owner := range owners {
		c := int(xxhash.Sum64String(owner) >> 16 % colours)
		for taken[c] > n/colours {
			c = (c + 1) % colours
		}
		taken[c]++
		d.colours[owner] = c
		if n < maxKeys {
			v.Owners = append(v.Owners, ownerKey{d.class(owner), cmp.Or(owner, "unknown")})
		}
	}
}

// maxKeys is how many owners the key names.
const maxKeys = 12

func (d *chartBuilder) class(owner string) string { return "o" + strconv.Itoa(d.colours[owner]) }

// lane draws a lane: what has no line on top, below it the lines of waits, below them the bars of holds.
func (d *chartBuilder) lane(l *timeline.Lane) laneView {
	first := l.All[0]
	v := laneView{Note: d.note(l)}
	if d.byLock {
		v.Name = text.Clip(l.Name, app.MaxNameShown)
		v.URL = d.p.app.URLs.Lock(l.Name, "")
	} else {
		v.Name = processName(first)
	}
	y := 2
	if len(l.Overflow) > 0 {
		for n := range l.Overflow {
			b := &l.Overflow[n]
			v.Overflow = append(v.Overflow, overflowView{percentage(min(b.X, 94)), "+" + strconv.Itoa(b.N),
				text.Thousands(b.N) + " more at a time, " + d.during(b.From, b.To), y + overflowHeight - 3})
		}
		y += overflowHeight
	}
	for _, row := range l.WaitRows {
		for n := range row {
			v.Bars = append(v.Bars, d.bar(&row[n], y, lineHeight))
		}
		y += lineStep
	}
	if len(l.WaitRows) > 0 {
		y += 2
	}
	height := barHeight
	if len(l.HoldRows) > 1 {
		height = thinBar
	}
	for _, row := range l.HoldRows {
		for n := range row {
			v.Bars = append(v.Bars, d.bar(&row[n], y, height))
		}
		y += height + 2
	}
	v.Height = max(minLane, y+2)
	return v
}

// note sums a lane up: how much time was lost at a lock, or what a process does now.
func (d *chartBuilder) note(l *timeline.Lane) string {
	switch {
	case l.TimeLost >= time.Second && d.byLock:
		return text.Duration(l.TimeLost) + " lost"
	case l.IsHeld && d.byLock:
		return "held"
	case l.IsHeld:
		return "holds it"
	case l.HasWaiters && !d.byLock:
		return "waits"
	}
	return ""
}

// bar draws a hold, a wait, or several that are too short to be told apart.
func (d *chartBuilder) bar(b *timeline.Bar, y, height int) barView {
	place := timeline.PercentRange{X: b.X, Width: max(b.Width, timeline.MinBarWidth)}
	v := barView{stretchView: at(place), Y: y, Height: height, Class: d.class(b.Owner), Title: d.barTitle(b)}
	if b.Mixed {
		v.Class = "mixed"
	}
	if b.Wait {
		return v
	}
	v.URL = d.p.app.URLs.Lock(b.Name, b.HistoryID())
	if b.Late.Width > 0 {
		v.Late = at(timeline.PercentRange{X: b.Late.X, Width: max(b.Late.Width, timeline.MinBarWidth)})
	}
	if b.Ended != "" {
		v.Mark = app.EndedIcon(locks.EndedWord(b.Ended))
		v.End = percentage(b.X + b.Width)
		v.MarkY = y + height/2
	}
	label := text.Visible(b.Owner)
	switch n := float64(utf8.RuneCountInString(label))*glyph + 8; {
	case b.N > 1 || height < barHeight || b.Width/100*wide < n:
	case b.Width/100*narrow < n:
		v.Text, v.WideOnly = label, true
	default:
		v.Text = label
	}
	return v
}

// at is a stretch as the drawing wants it.
func at(s timeline.PercentRange) stretchView {
	return stretchView{percentage(s.X), percentage(s.Width)}
}

func percentage(f float64) string {
	return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) + "%"
}

// ticks are the times that the axis names.
func ticks(s timeline.Span) (marks []tickView) {
	whole := s.To.Sub(s.From)
	step := 5 * time.Minute
	for _, longer := range []time.Duration{10 * time.Minute, time.Hour, 4 * time.Hour} {
		if whole/step > 6 {
			step = longer
		}
	}
	for t := s.From.Truncate(step).Add(step); t.Before(s.To); t = t.Add(step) {
		x := 100 * float64(t.Sub(s.From)) / float64(whole)
		if x > 3 && x < 75 { // the edge has a name of its own
			marks = append(marks, tickView{percentage(x), t.UTC().Format("15:04")})
		}
	}
	return marks
}
