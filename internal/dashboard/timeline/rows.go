package timeline

import "slices"

// barRows are rows of bars; within a row, no bars overlap.
type barRows struct {
	rows    [][]Bar
	maxRows int
	ends    []int64 // of bars beyond that have not ended, sorted
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

// addOverflow counts a bar that has no row. N is the maximum number of such bars at a time.
func (s *barRows) addOverflow(b Bar, narrow float64) {
	if len(s.rows) == 0 {
		s.rows = [][]Bar{{}}
	}
	over, _ := slices.BinarySearch(s.ends, b.From.UnixNano()+1)
	at, _ := slices.BinarySearch(s.ends, b.To.UnixNano())
	s.ends = slices.Insert(s.ends, at, b.To.UnixNano())[over:]
	row := s.rows[0]
	if n := len(row); n > 0 && b.X <= row[n-1].X+row[n-1].Width+max(narrow, overflowGap) {
		most := max(row[n-1].N, len(s.ends))
		row[n-1].merge(&b)
		row[n-1].N = most
		return
	}
	s.rows[0] = append(row, b)
}

// overflowGap is the distance, in percent, within which overflow bars are merged, so that their counts fit.
const overflowGap = 6

// canMerge reports whether the next bar is drawn as one with this one: both are short, adjacent, and, unless there are
// too many bars, were released in time.
func (b *Bar) canMerge(next *Bar, narrow float64) bool {
	plain := func(b *Bar) bool { return b.Ended == "" && b.Late.Width == 0 }
	if narrow == MinBarWidth && (!plain(b) || !plain(next)) {
		return false
	}
	return (b.N > 1 || b.Width < narrow) && next.Width < narrow && next.X-b.X-b.Width < narrow
}

// merge extends the bar by one that begins later.
func (b *Bar) merge(next *Bar) {
	b.Width = max(b.Width, next.X+next.Width-b.X)
	b.N += next.N
	b.Mixed = b.Mixed || next.Mixed || b.Owner != next.Owner
	if severity(next.Ended) > severity(b.Ended) {
		b.Ended = next.Ended
	}
	switch {
	case next.Late.Width == 0:
	case b.Late.Width == 0:
		b.Late = next.Late
	default:
		b.Late.Width = max(b.Late.Width, next.Late.X+next.Late.Width-b.Late.X)
	}
	if next.Interval.LengthWithin(next.From, next.To) > b.Interval.LengthWithin(b.From, b.To) {
		b.Interval = next.Interval
	}
	if next.To.After(b.To) {
		b.To = next.To
	}
}
