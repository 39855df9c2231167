package locks

import (
	"slices"
	"sync"
)

// sortings caches all rows of a snapshot in the orders that were asked for.
type sortings struct {
	mu   sync.Mutex
	done map[Order][]*Row
}

// InOrder returns all rows sorted. The first one to ask waits; the others wait with it.
func (s *Snapshot) InOrder(o Order) []*Row {
	s.sorted.mu.Lock()
	defer s.sorted.mu.Unlock()
	rows, ok := s.sorted.done[o]
	if !ok {
		rows = sortRows(s.everyRow(), o, s.cycleRanks())
		if s.sorted.done == nil {
			s.sorted.done = map[Order][]*Row{}
		}
		s.sorted.done[o] = rows
	}
	return rows
}

// cycleRanks returns, for each lock in a deadlock, the place of its cycle and its place in it.
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

// Sort returns rows in the order, as if no lock were part of a deadlock.
func Sort(rows []*Row, o Order) []*Row { return sortRows(rows, o, nil) }

func sortRows(rows []*Row, o Order, cycles map[string][2]int) []*Row {
	type placed struct {
		Position
		row *Row
	}
	all := make([]placed, len(rows))
	for i, r := range rows {
		all[i] = placed{o.position(r, cycles), r}
	}
	slices.SortFunc(all, func(a, b placed) int { return o.compare(&a.Position, &b.Position) })
	sorted := make([]*Row, len(rows))
	for i := range all {
		sorted[i] = all[i].row
	}
	return sorted
}
