package dashboard

import (
	"maps"
	"slices"
	"sync"
)

// sortings are all rows of a snapshot, sorted by what lists were sorted by. From one snapshot to the next few rows change, so a
// sorting is made from the one before: without the rows that went, and with those that came merged in.
type sortings struct {
	before map[order][]*row  // of the snapshot before
	came   []*row            // rows that the snapshot before had not
	went   map[*row]struct{} // rows that only the snapshot before had

	mu   sync.Mutex
	done map[order][]*row
}

// left notes that a lock of the snapshot before is gone.
func (s *sortings) left(r *row) {
	if s.before == nil {
		return
	}
	if s.went == nil {
		s.went = map[*row]struct{}{}
	}
	s.went[r] = struct{}{}
}

// replaced notes that a row took the place of another, which may be nil or the same.
func (s *sortings) replaced(before, r *row) {
	if s.before == nil || before == r {
		return
	}
	if s.came = append(s.came, r); before != nil {
		s.left(before)
	}
}

// finished are the sortings that lists have asked for.
func (s *sortings) finished() map[order][]*row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.done)
}

// inOrder returns all rows sorted. The first one to ask waits; the others wait with it.
func (s *snapshot) inOrder(o order) []*row {
	if o == (order{by: "name"}) { // as the rows of a snapshot are
		return s.rows
	}
	s.sorted.mu.Lock()
	defer s.sorted.mu.Unlock()
	if rows, ok := s.sorted.done[o]; ok {
		return rows
	}
	rows, ok := s.sorted.before[o]
	if few := len(s.sorted.came)+len(s.sorted.went) < len(s.rows)/4; ok && few {
		rows = s.sorted.merge(o, rows)
	} else {
		rows = o.sort(s.rows)
	}
	if s.sorted.done == nil {
		s.sorted.done = map[order][]*row{}
	}
	s.sorted.done[o] = rows
	return rows
}

func (s *sortings) merge(o order, old []*row) []*row {
	came := o.sort(s.came)
	out := make([]*row, 0, len(old)+len(came))
	for _, r := range old {
		if _, gone := s.went[r]; gone {
			continue
		}
		for len(came) > 0 && o.less(came[0], r) {
			out, came = append(out, came[0]), came[1:]
		}
		out = append(out, r)
	}
	return append(out, came...)
}

func (o order) less(a, b *row) bool {
	x, y := o.position(a), o.position(b)
	return o.compare(&x, &y) < 0
}

// sort returns the rows sorted. It computes each position once; comparing rows directly would take twice the time.
func (o order) sort(rows []*row) []*row {
	type place struct {
		position
		row *row
	}
	places := make([]place, len(rows))
	for i, row := range rows {
		places[i] = place{o.position(row), row}
	}
	slices.SortFunc(places, func(a, b place) int { return o.compare(&a.position, &b.position) })
	sorted := make([]*row, len(rows))
	for i := range places {
		sorted[i] = places[i].row
	}
	return sorted
}
