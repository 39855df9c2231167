package locks

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// sortings are all rows of a snapshot, sorted by what lists were sorted by. From one snapshot to the next few rows
// change, so a sorting is made from the one before.
type sortings struct {
	before map[Order]Rows // of the snapshot before

	mu   sync.Mutex
	done map[Order]Rows
}

// finished are the sortings that lists have asked for.
func (s *sortings) finished() map[Order]Rows {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.done)
}

// InOrder returns all rows sorted. The first one to ask waits; the others wait with it.
func (s *Snapshot) InOrder(o Order) Rows {
	if o == (Order{By: "name"}) { // as the rows of a snapshot are
		return s.Rows
	}
	s.sorted.mu.Lock()
	defer s.sorted.mu.Unlock()
	if rows, ok := s.sorted.done[o]; ok {
		return rows
	}
	rows, ok := s.sorted.before[o]
	if ok && s.changes.few {
		rows = s.changes.merge(o, rows, s.changes.came)
	} else {
		rows = rowsOf(o.Sort(s.Rows.Slice(0, s.Rows.Len())))
	}
	if s.sorted.done == nil {
		s.sorted.done = map[Order]Rows{}
	}
	s.sorted.done[o] = rows
	return rows
}

func (o Order) less(a, b *Row) bool {
	x := o.position(a)
	y := o.position(b)
	return o.compare(&x, &y) < 0
}

// sortKey is a position in few bytes, because sorting is moving and comparing: a text is told by its rank among all of
// them, a name by where its row stands among rows that are sorted by name.
type sortKey struct {
	at           int64
	group, index int32
}

// Sort returns rows, which come sorted by name, in this order.
func (o Order) Sort(rows []*Row) []*Row {
	ranks := o.ranks(rows)
	places := make([]sortKey, len(rows))
	inPieces(len(rows), minPiece, func(from, to int) struct{} {
		for i := from; i < to; i++ {
			p := o.position(rows[i])
			switch {
			case ranks != nil:
				p.At = ranks[p.Text]
			case o.By == "name":
				p.At = int64(i)
			}
			places[i] = sortKey{p.At, int32(p.Group), int32(i)}
		}
		return struct{}{}
	})
	sorted := make([]*Row, len(rows))
	slices.SortFunc(places, o.comparePlaces)
	for i, p := range places {
		sorted[i] = rows[p.index]
	}
	return sorted
}

func (o Order) comparePlaces(a, b sortKey) int {
	switch {
	case a.group != b.group:
		return cmp.Compare(a.group, b.group)
	case a.at == b.at:
		return cmp.Compare(a.index, b.index)
	case o.Reverse:
		return cmp.Compare(b.at, a.at)
	}
	return cmp.Compare(a.at, b.at)
}

// ranks are the places of the rows' texts among each other; nil for an order without texts.
func (o Order) ranks(rows []*Row) map[string]int64 {
	if o.By != "owner" && o.By != "host" {
		return nil
	}
	ranks := map[string]int64{}
	for _, r := range rows {
		ranks[o.position(r).Text] = 0
	}
	for i, text := range slices.SortedFunc(maps.Keys(ranks), o.compareText) {
		ranks[text] = int64(i)
	}
	return ranks
}
