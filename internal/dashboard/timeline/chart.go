package timeline

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Limits of a lane.
const (
	maxWaitRows = 6 // waits, one above the other
	maxHoldRows = 4 // holds of one lock at a time
)

type Span struct{ From, To time.Time }

// Options say what a chart shows, and its limits.
type Options struct {
	Span // the right edge is now
	// Lane is the name of the lane that an interval is in.
	Lane func(*Interval) string
	// AsOf is the time up to which current holds and waits are confirmed: now, or the last sign of life of etcd.
	AsOf time.Time
	// Order compares lanes.
	Order func(a, b *Lane) int
	// Unknown is when the locks were not watched.
	Unknown []Span
	Lanes   int // at most
	Bars    int // at most, in sum; short ones are joined until they are no more
}

// Chart is the computed layout.
type Chart struct {
	Lanes []Lane
	More  int // lanes that are left out
	Bars  int
	// Unknown is when the locks were not watched.
	Unknown []PercentRange
}

// Lane is what happened to one lock, or what one process did.
type Lane struct {
	Name                 string
	TimeWaited, TimeHeld time.Duration // in sum, of all who waited and held
	Wrong                int           // holds that were late or did not end by a release
	Last                 time.Time     // when something of it ended, or is known to have lasted
	First                time.Time
	Holders              []*Interval // current holds
	HasWaiters           bool        // there are waiters now
	HoldRows             [][]Bar     // of holds
	WaitRows             [][]Bar     // of waits
	Undrawn              int         // waits and holds for which there is no row
	All                  []*Interval // by their beginning
}

// PercentRange is a part of the width of a chart, in percent.
type PercentRange struct{ X, Width float64 }

// Bar is what is drawn of one interval, or of several that are too short to be told apart.
type Bar struct {
	PercentRange
	*Interval              // the longest
	N         int          // how many it stands for
	Late      PercentRange // the part past the alert; no width: none
	Ended     string       // how it or its holder ended, if not by a release: of several, the gravest
	From, To  time.Time
}

// NewChart lays intervals out. They begin before they end, as after [Merge].
func NewChart(all []Interval, p Options) Chart {
	lanes := map[string]*Lane{}
	for n := range all {
		i := &all[n]
		if !i.End.IsZero() && !i.End.After(p.From) || !i.Begin.Before(p.To) {
			continue
		}
		name := p.Lane(i)
		if lanes[name] == nil {
			lanes[name] = &Lane{Name: name, First: i.Begin}
		}
		lanes[name].add(i, &p)
	}
	sorted := slices.SortedFunc(maps.Values(lanes), func(a, b *Lane) int {
		return cmp.Or(p.Order(a, b), cmp.Compare(a.Name, b.Name))
	})
	chart := Chart{More: max(0, len(sorted)-p.Lanes)}
	for _, l := range sorted[:len(sorted)-chart.More] {
		slices.SortFunc(l.All, func(a, b *Interval) int {
			return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
		})
		chart.Lanes = append(chart.Lanes, *l)
	}
	for _, span := range p.Unknown {
		if s := p.PercentOf(span.From, span.To); s.Width > 0 {
			chart.Unknown = append(chart.Unknown, s)
		}
	}
	chart.fill(&p)
	return chart
}

// ByTimeWaited puts the lane first with most waiting time, then those where something went wrong, then the busiest.
func ByTimeWaited(a, b *Lane) int {
	return cmp.Or(cmp.Compare(b.TimeWaited, a.TimeWaited), cmp.Compare(b.Wrong, a.Wrong),
		cmp.Compare(b.TimeHeld, a.TimeHeld))
}

func (l *Lane) add(i *Interval, p *Options) {
	l.All = append(l.All, i)
	l.First = protocol.Earlier(l.First, i.Begin)
	last := i.End
	if last.IsZero() {
		last = p.AsOf
		if l.HasWaiters = l.HasWaiters || i.Wait; !i.Wait {
			l.Holders = append(l.Holders, i)
		}
	}
	l.Last = protocol.Later(l.Last, last)
	length := i.lengthWithin(p.From, p.AsOf)
	if i.Wait {
		l.TimeWaited += length
		return
	}
	l.TimeHeld += length
	if i.Dead || severity(i.Ended) > 0 || !i.LateSince(p.AsOf).IsZero() {
		l.Wrong++
	}
}

// severity ranks the causes by which holds end; 0 is a release.
func severity(ended string) int {
	return slices.Index([]string{metadata.EndingAutoUnlocked, metadata.EndingAbandoned, metadata.EndingForced}, ended) +
		1
}

// PercentOf returns the part of s that from and to cover, in percent.
func (s Span) PercentOf(from, to time.Time) PercentRange {
	from, to = protocol.Later(from, s.From), protocol.Earlier(to, s.To)
	whole := float64(s.To.Sub(s.From))
	return PercentRange{100 * float64(from.Sub(s.From)) / whole, max(0, 100*float64(to.Sub(from))/whole)}
}

// MinBarWidth is the minimum width of a bar, and the gap up to which short bars are merged, in percent.
const MinBarWidth = .3

// fill adds the bars to the lanes. It widens the gap up to which bars are merged until there are few enough.
func (p *Chart) fill(options *Options) {
	for narrow := MinBarWidth; ; narrow *= 1.5 {
		p.Bars = 0
		for n := range p.Lanes {
			p.Bars += p.Lanes[n].fill(options, narrow)
		}
		if p.Bars <= options.Bars || narrow > 100 {
			return
		}
	}
}

func (l *Lane) fill(p *Options, narrow float64) (bars int) {
	holds := barRows{maxRows: maxHoldRows}
	waits := barRows{maxRows: maxWaitRows}
	l.Undrawn = 0
	for _, i := range l.All {
		rows := &holds
		if i.Wait {
			rows = &waits
		}
		if !rows.place(newBar(i, p), narrow) {
			l.Undrawn++
		}
	}
	l.HoldRows, l.WaitRows = holds.rows, waits.rows
	for _, row := range slices.Concat(l.HoldRows, l.WaitRows) {
		bars += len(row)
	}
	return bars
}

// newBar returns the bar of an interval. A current one lasts until it was last confirmed.
func newBar(i *Interval, p *Options) Bar {
	end := cmp.Or(i.End, p.AsOf)
	b := Bar{PercentRange: p.PercentOf(i.Begin, end), Interval: i, N: 1, From: i.Begin, To: end}
	if late := i.LateSince(p.AsOf); !late.IsZero() {
		b.Late = p.PercentOf(protocol.Later(late, i.Begin), end)
	}
	switch {
	case i.Dead:
		b.Ended = metadata.EndingAbandoned
	case severity(i.Ended) > 0:
		b.Ended = i.Ended
	}
	return b
}

// barRows are rows of bars; within a row, no bars overlap.
type barRows struct {
	rows    [][]Bar
	maxRows int
}

// place adds a bar to the first row with room for it, and reports whether there is one. Bars come in order of From.
func (s *barRows) place(b Bar, narrow float64) bool {
	for n, row := range s.rows {
		last := &row[len(row)-1]
		if last.To.After(b.From) {
			continue
		}
		if last.canMerge(&b, narrow) {
			last.merge(&b)
		} else {
			s.rows[n] = append(row, b)
		}
		return true
	}
	if len(s.rows) == s.maxRows {
		return false
	}
	s.rows = append(s.rows, []Bar{b})
	return true
}

// canMerge reports whether the next bar is drawn as one with this one: both are short, adjacent, and, unless there are
// too many bars, both were released in time or neither was.
func (b *Bar) canMerge(next *Bar, narrow float64) bool {
	plain := func(b *Bar) bool { return b.Ended == "" && b.Late.Width == 0 }
	if narrow == MinBarWidth && plain(b) != plain(next) {
		return false
	}
	return (b.N > 1 || b.Width < narrow) && next.Width < narrow && next.X-b.X-b.Width < narrow
}

// merge extends the bar by one that begins later.
func (b *Bar) merge(next *Bar) {
	b.Width = next.X + next.Width - b.X
	b.N += next.N
	if severity(next.Ended) > severity(b.Ended) {
		b.Ended = next.Ended
	}
	if b.Late.Width == 0 {
		b.Late = next.Late
	} else if next.Late.Width > 0 {
		b.Late.Width = next.Late.X + next.Late.Width - b.Late.X
	}
	if next.Interval.lengthWithin(next.From, next.To) > b.Interval.lengthWithin(b.From, b.To) {
		b.Interval = next.Interval
	}
	b.To = next.To
}
