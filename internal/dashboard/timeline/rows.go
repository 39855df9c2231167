package timeline

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
	if next.Interval.LengthWithin(next.From, next.To) > b.Interval.LengthWithin(b.From, b.To) {
		b.Interval = next.Interval
	}
	b.To = next.To
}
