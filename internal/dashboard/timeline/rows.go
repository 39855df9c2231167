package timeline

import "slices"

// stack is rows of bars, one above the other. Within a row nothing overlaps.
type stack struct {
	rows [][]Bar
	most int
	ends []int64 // of bars beyond that have not ended, sorted
}

// put puts a bar into the first row that is free by then; it fails if there is none. Bars come by their beginning.
func (s *stack) put(b Bar, narrow float64) bool {
	for n, row := range s.rows {
		last := &row[len(row)-1]
		if last.To.After(b.From) {
			continue
		}
		if last.joins(&b, narrow) {
			last.join(&b)
		} else {
			s.rows[n] = append(row, b)
		}
		return true
	}
	if len(s.rows) == s.most {
		return false
	}
	s.rows = append(s.rows, []Bar{b})
	return true
}

// crowd counts a bar without a row together with those that it overlaps: the number is the most at a time.
func (s *stack) crowd(b Bar, narrow float64) {
	if len(s.rows) == 0 {
		s.rows = [][]Bar{{}}
	}
	over, _ := slices.BinarySearch(s.ends, b.From.UnixNano()+1)
	at, _ := slices.BinarySearch(s.ends, b.To.UnixNano())
	s.ends = slices.Insert(s.ends, at, b.To.UnixNano())[over:]
	row := s.rows[0]
	if n := len(row); n > 0 && b.X <= row[n-1].X+row[n-1].Width+max(narrow, crowdGap) {
		most := max(row[n-1].N, len(s.ends))
		row[n-1].join(&b)
		row[n-1].N = most
		return
	}
	s.rows[0] = append(row, b)
}

// crowdGap is over how much of the width counts of what has no row are joined, so that their numbers have room.
const crowdGap = 6

// joins reports whether another bar, which follows, is drawn as one with this one: both are short, next to each other,
// and nothing went wrong with them, unless everything has to move together.
func (b *Bar) joins(next *Bar, narrow float64) bool {
	plain := func(b *Bar) bool { return b.Ended == "" && b.Late.Width == 0 }
	if narrow == Narrow && (!plain(b) || !plain(next)) {
		return false
	}
	return (b.N > 1 || b.Width < narrow) && next.Width < narrow && next.X-b.X-b.Width < narrow
}

// join makes one bar of two, of which the other one begins later.
func (b *Bar) join(next *Bar) {
	b.Width = max(b.Width, next.X+next.Width-b.X)
	b.N += next.N
	b.Mixed = b.Mixed || next.Mixed || b.Owner != next.Owner
	if gravity(next.Ended) > gravity(b.Ended) {
		b.Ended = next.Ended
	}
	switch {
	case next.Late.Width == 0:
	case b.Late.Width == 0:
		b.Late = next.Late
	default:
		b.Late.Width = max(b.Late.Width, next.Late.X+next.Late.Width-b.Late.X)
	}
	if next.Interval.Within(next.From, next.To) > b.Interval.Within(b.From, b.To) {
		b.Interval = next.Interval
	}
	if next.To.After(b.To) {
		b.To = next.To
	}
}
