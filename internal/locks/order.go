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
		rows = s.sort(s.Rows, o)
		if s.sorted.done == nil {
			s.sorted.done = map[Order][]*Row{}
		}
		s.sorted.done[o] = rows
	}
	return rows
}

// cycleRanks are the locks in deadlocks, by where their cycle and they in it come.
func (s *Snapshot) cycleRanks() map[string][2]int {
	ranks := map[string][2]int{}
	for i, cycle := range s.Cycles() {
		for n, lock := range cycle.Locks() {
			if _, known := ranks[lock]; !known {
				ranks[lock] = [2]int{i, n}
			}
		}
	}
	return ranks
}

// sortKey is a position whose texts are computed once: a name is told by where its row stands among rows that are
// sorted by name.
type sortKey struct {
	keys    [5]int64
	text    string
	unknown int
	index   int
}

// Sort returns rows, which come sorted by name, in the order. Deadlocks are not known to it.
func Sort(rows []*Row, o Order) []*Row { return sortRows(rows, o, nil) }

func (s *Snapshot) sort(rows []*Row, o Order) []*Row { return sortRows(rows, o, s.cycleRanks()) }

func sortRows(rows []*Row, o Order, cycles map[string][2]int) []*Row {
	keys := make([]sortKey, len(rows))
	for i, r := range rows {
		p := o.position(r, cycles)
		keys[i] = sortKey{p.Keys, o.textKey(p.Text), asInt(p.Unknown), i}
		if o.By == "name" {
			keys[i].keys[0], keys[i].text = int64(i), ""
		}
	}
	slices.SortFunc(keys, func(a, b sortKey) int { return compareKeys(&a, &b, o.Reverse) })
	sorted := make([]*Row, len(rows))
	for i := range keys {
		sorted[i] = rows[keys[i].index]
	}
	return sorted
}

func compareKeys(a, b *sortKey, reverse bool) int {
	if a.unknown != b.unknown {
		return cmp.Compare(a.unknown, b.unknown)
	}
	c := slices.Compare(a.keys[:], b.keys[:])
	if c == 0 {
		c = strings.Compare(a.text, b.text)
	}
	if reverse {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(a.index, b.index))
}
