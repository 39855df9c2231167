package locks

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// sortings are all rows of a snapshot, sorted by what lists were sorted by.
type sortings struct {
	mu   sync.Mutex
	done map[Order][]*Row
}

// InOrder returns all rows sorted. The first one to ask waits; the others wait with it.
func (s *Snapshot) InOrder(o Order) []*Row {
	if o == (Order{By: "name"}) { // as the rows of a snapshot are
		return s.Rows
	}
	s.sorted.mu.Lock()
	defer s.sorted.mu.Unlock()
	rows, ok := s.sorted.done[o]
	if !ok {
		rows = o.Sort(s.Rows)
		if s.sorted.done == nil {
			s.sorted.done = map[Order][]*Row{}
		}
		s.sorted.done[o] = rows
	}
	return rows
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
	type text struct{ key, text string }
	var texts []text
	for _, r := range rows {
		t := o.position(r).Text
		if _, known := ranks[t]; !known {
			ranks[t] = 0
			texts = append(texts, text{o.textKey(t), t})
		}
	}
	slices.SortFunc(texts, func(a, b text) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.text, b.text))
	})
	for i, t := range texts {
		ranks[t.text] = int64(i)
	}
	return ranks
}
