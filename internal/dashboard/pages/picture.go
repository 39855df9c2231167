package pages

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/intervals"
	"github.com/clustermutex/unlocker/internal/dashboard/lanes"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// picture is who held and who waited, drawn: a lane for each lock or process, time to the right, now at the edge.
type picture struct {
	Windows []choice
	Lanes   []laneView
	More    int // lanes that are left out
	Counts  *countsView
	Ticks   []tickView
	Now     string
	Owners  []ownerKey
	Table   []wordsView
	Cut     int // rows that are left out
	CSV     string
	Unknown bool // there is a time about which nothing is known
	Notes   []string
}

// laneView is a lane: its label and its drawing. Places across are percentages, places down are pixels.
type laneView struct {
	Name, URL string
	Cluster   string
	Mark      *clusterMark // of it, where there are several
	Note      string       // what was lost in it
	Height    int
	Unknown   []stretchView
	Away      []stretchView // what is not known now: over all that is drawn
	Bars      []barView
	Beyond    []beyondView
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
	Roomy     bool // the text has no place where there is little room
}

// beyondView is how many more there were than lines.
type beyondView struct {
	X, Text, Title string
	Y              int
}

type tickView struct{ X, Text string }

type ownerKey struct{ Class, Name string }

// wordsView is an interval in words.
type wordsView struct {
	Lane, URL  string
	Who        string
	What       string
	From, Till string
	Took       string
}

// countsView is when somebody waited, as Prometheus remembers it.
type countsView struct {
	Bars  []stretchView
	Label string
}

// drawing is what lanes are drawn with.
type drawing struct {
	p       *Pages
	span    lanes.Span
	at      func(cluster string) phrase.Viewpoint
	colours map[string]int
	byLock  bool // a lane is a lock
}

// The geometry, in pixels.
const (
	lineHeight = 3
	lineStep   = 4
	barHeight  = 16
	thinBar    = 10 // where several hold a lock
	crowdLine  = 12
	minLane    = 24

	// text of a bar is written where it fits a picture of this width, and the other one on a phone
	wide, narrow = 900., 330.
	glyph        = 6.6

	maxBars  = 1200 // that are drawn: more would not be told apart, and make the page slow
	maxTable = 100  // of the table

	colours = 8
)

// draw draws a plan.
func (d *drawing) draw(all []intervals.Interval, plan lanes.Plan) *picture {
	plan.Span = d.span
	plan.Bars = maxBars
	plan.AsOf = func(k lanes.Key) time.Time { return d.at(k.Cluster).AsOf }
	laid := lanes.Lay(all, plan)
	v := &picture{More: laid.More, Ticks: ticks(d.span), Now: d.edge()}
	d.choose(laid.Lanes, v)
	for n := range laid.Lanes {
		v.Lanes = append(v.Lanes, d.lane(&laid.Lanes[n]))
		v.Unknown = v.Unknown || len(laid.Lanes[n].Unknown) > 0
	}
	v.table(d, laid.Lanes)
	return v
}

// edge names the right edge: now, unless all that is shown is older.
func (d *drawing) edge() string { return "now " + d.span.To.UTC().Format("15:04") }

// choose gives each owner in the picture a colour: by its name, so that it seldom changes, and another one than the
// others have, while there are any.
func (d *drawing) choose(all []lanes.Lane, v *picture) {
	d.colours = map[string]int{}
	var owners []string
	for n := range all {
		for _, i := range all[n].All() {
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

func (d *drawing) class(owner string) string { return "o" + strconv.Itoa(d.colours[owner]) }

// lane draws a lane: what has no line on top, below it the lines of waits, below them the bars of holds.
func (d *drawing) lane(l *lanes.Lane) laneView {
	first := l.All()[0]
	v := laneView{Note: d.note(l)}
	if d.byLock {
		v.Name, v.Cluster = text.Clip(l.Name, site.MaxNameShown), l.Cluster
		v.URL = d.urls(l.Cluster).Lock(l.Name, "")
	} else {
		v.Name = who(first)
	}
	for _, s := range l.Unknown {
		v.Unknown = append(v.Unknown, at(s))
	}
	if n := len(v.Unknown); n > 0 && d.at(l.Cluster).Stale { // the last one goes on
		v.Away = v.Unknown[n-1:]
	}
	y := 2
	if len(l.Beyond) > 0 {
		for n := range l.Beyond {
			b := &l.Beyond[n]
			v.Beyond = append(v.Beyond, beyondView{percentage(min(b.X, 94)), "+" + strconv.Itoa(b.N),
				phrase.Thousands(b.N) + " more at a time, " + d.during(b.From, b.To), y + crowdLine - 3})
		}
		y += crowdLine
	}
	for _, row := range l.Lines {
		for n := range row {
			v.Bars = append(v.Bars, d.bar(&row[n], y, lineHeight))
		}
		y += lineStep
	}
	if len(l.Lines) > 0 {
		y += 2
	}
	height := barHeight
	if len(l.Rows) > 1 {
		height = thinBar
	}
	for _, row := range l.Rows {
		for n := range row {
			v.Bars = append(v.Bars, d.bar(&row[n], y, height))
		}
		y += height + 2
	}
	v.Height = max(minLane, y+2)
	return v
}

// note sums a lane up: how much time was lost at a lock, or what a process does now.
func (d *drawing) note(l *lanes.Lane) string {
	switch {
	case l.Lost >= time.Second && d.byLock:
		return text.Duration(l.Lost) + " lost"
	case l.Holds && d.byLock:
		return "held"
	case l.Holds:
		return "holds it"
	case l.Waits && !d.byLock:
		return "waits"
	}
	return ""
}

// bar draws a hold, a wait, or several that are too short to be told apart.
func (d *drawing) bar(b *lanes.Bar, y, height int) barView {
	v := barView{stretchView: at(lanes.Stretch{X: b.X, Width: max(b.Width, lanes.Narrow)}), Y: y, Height: height,
		Class: d.class(b.Owner), Title: d.title(b)}
	if b.Mixed {
		v.Class = "mixed"
	}
	if b.Wait {
		return v
	}
	v.URL = d.urls(b.Cluster).Lock(b.Name, b.HistoryID())
	if b.Late.Width > 0 {
		v.Late = at(lanes.Stretch{X: b.Late.X, Width: max(b.Late.Width, lanes.Narrow)})
	}
	if b.Ended != "" {
		v.Mark = site.EndedIcon(locks.EndedWord(b.Ended))
		v.End = percentage(b.X + b.Width)
		v.MarkY = y + height/2
	}
	label := text.Visible(b.Owner)
	switch n := float64(utf8.RuneCountInString(label))*glyph + 8; {
	case b.N > 1 || height < barHeight || b.Width/100*wide < n:
	case b.Width/100*narrow < n:
		v.Text, v.Roomy = label, true
	default:
		v.Text = label
	}
	return v
}

func (d *drawing) urls(cluster string) site.URLs {
	if cluster == "" {
		return d.p.site.URLs
	}
	return d.p.site.URLs.In(cluster)
}

// title is a bar in words.
func (d *drawing) title(b *lanes.Bar) string {
	if b.N > 1 {
		what := " holds "
		if b.Wait {
			what = " waits "
		}
		said := phrase.Thousands(b.N) + what + d.during(b.From, b.To) + ", the longest by " + who(b.Interval)
		if b.Ended != "" {
			words, _ := metadata.EndingOf(b.Ended)
			said += "; at least one was " + words.Verb
		}
		return said
	}
	return who(b.Interval) + " " + d.did(b.Interval)
}

// who is who held or waited.
func who(i *intervals.Interval) string {
	return process(i.Owner, i.Host, i.PID).String()
}

// did is what became of a hold or a wait: "held it for 3m, from 12:00:03 to 12:03:04 UTC, and was late".
func (d *drawing) did(i *intervals.Interval) string {
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
	now := d.at(i.Cluster)
	if lasts {
		said += " since " + d.clock(i.Begin) + " UTC, for " + text.Duration(now.AsOf.Sub(i.Begin))
	} else {
		said += " for " + text.Duration(i.End.Sub(i.Begin)) + ", " + d.during(i.Begin, i.End)
	}
	if late := i.Late(now.AsOf); !late.IsZero() {
		said += ", past its alert at " + d.clock(late)
	}
	words, known := metadata.EndingOf(i.Ended)
	switch {
	case i.Wait && !i.Taken && !lasts:
		said += ", and gave up"
	case i.Ended != "" && i.Ended != metadata.EndedReleased && known:
		said += ", and was " + words.Verb
	}
	return said
}

// what is the share that a hold has; the lock itself has its name beside it.
func what(i *intervals.Interval) string {
	if i.Name == i.Lock {
		return "it"
	}
	return text.Visible(text.Clip(i.Name, site.MaxNameShown))
}

func (d *drawing) during(from, to time.Time) string {
	return "from " + d.clock(from) + " to " + d.clock(to) + " UTC"
}

// clock is the time of day, with the date if that is another one than at the right edge.
func (d *drawing) clock(t time.Time) string {
	t = t.UTC()
	if t.YearDay() != d.span.To.UTC().YearDay() {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05")
}

// table is the picture in words: what lasts or ended last is first.
func (v *picture) table(d *drawing, all []lanes.Lane) {
	type row struct {
		lane *lanes.Lane
		*intervals.Interval
	}
	var rows []row
	for n := range all {
		for _, i := range all[n].All() {
			rows = append(rows, row{&all[n], i})
		}
	}
	end := func(r row) time.Time {
		if r.End.IsZero() {
			return d.at(r.Cluster).AsOf
		}
		return r.End
	}
	slices.SortStableFunc(rows, func(a, b row) int { return end(b).Compare(end(a)) })
	v.Cut = max(0, len(rows)-maxTable)
	for _, r := range rows[:len(rows)-v.Cut] {
		view := wordsView{Lane: text.Clip(r.Lock, site.MaxNameShown), Who: who(r.Interval), From: d.clock(r.Begin),
			What: whatBecame(r.Interval), Took: text.Duration(end(r).Sub(r.Begin))}
		if !r.End.IsZero() {
			view.Till = d.clock(r.End)
		}
		if !r.Wait {
			view.URL = d.urls(r.Cluster).Lock(r.Name, r.HistoryID())
		}
		v.Table = append(v.Table, view)
	}
}

// whatBecame is a hold or a wait in a word.
func whatBecame(i *intervals.Interval) string {
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

// at is a stretch as the drawing wants it.
func at(s lanes.Stretch) stretchView { return stretchView{percentage(s.X), percentage(s.Width)} }

func percentage(f float64) string {
	return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) + "%"
}

// ticks are the times that the axis names.
func ticks(s lanes.Span) (marks []tickView) {
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

// counts draws how many waited, as somebody else remembers it; nil: nobody did.
func (d *drawing) counts(points []trends.Point) *countsView {
	v := &countsView{}
	most := 0
	for _, p := range points {
		place := d.span.Place(p.At, p.At.Add(trends.Slot))
		if p.Most > 0 && place.Width > 0 {
			v.Bars = append(v.Bars, at(place))
			most = max(most, p.Most)
		}
	}
	if most == 0 {
		return nil
	}
	v.Label = "at most " + phrase.Thousands(most) + " waited at a time"
	return v
}
