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
		rows = Sort(s.Rows, o)
		if s.sorted.done == nil {
			s.sorted.done = map[Order][]*Row{}
		}
		s.sorted.done[o] = rows
	}
	return rows
}

// sortKey is a position in few bytes, because sorting is moving and comparing: a name is told by where its row stands
// among rows that are sorted by name.
type sortKey struct {
	at           int64
	text         string
	group, index int32
}

// Sort returns rows, which come sorted by name, in the order.
func Sort(rows []*Row, o Order) []*Row {
	keys := make([]sortKey, len(rows))
	for i, r := range rows {
		p := o.Position(r)
		keys[i] = sortKey{p.At, o.TextKey(p.Text), int32(p.Group), int32(i)}
		if o.By == "name" {
			keys[i].at, keys[i].text = int64(i), ""
		}
	}
	sorted := make([]*Row, len(rows))
	slices.SortFunc(keys, func(a, b sortKey) int { return compareKeys(a, b, o.Reverse) })
	for i, p := range keys {
		sorted[i] = rows[p.index]
	}
	return sorted
}

func compareKeys(a, b sortKey, reverse bool) int {
	if a.group != b.group {
		return cmp.Compare(a.group, b.group)
	}
	c := cmp.Compare(a.at, b.at)
	if c == 0 {
		c = strings.Compare(a.text, b.text)
	}
	if reverse {
		c = -c
	}
	if c == 0 {
		return cmp.Compare(a.index, b.index)
	}
	return c
}
