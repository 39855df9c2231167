package deadlock

// components returns the groups of two or more processes that wait for each other, directly or through others of the
// group: the strongly connected components (Tarjan) of the graph in which processes lead to the locks they wait for,
// and locks to the processes that block them.
func (s *subgraph) components(among []int) [][]int {
	w := walk{subgraph: s}
	for _, who := range among {
		if w.at(who).turn != s.turn {
			w.walkFrom(who)
		}
	}
	return w.found
}

// walk is a depth-first walk of the graph. Locks have negative numbers, from -1 down.
type walk struct {
	*subgraph
	met   int // nodes
	path  []int
	found [][]int
}

// visit is when the walk of this turn met a node, and the earliest node reachable from it.
type visit struct {
	turn, met, low int
	done           bool
}

func (w *walk) at(n int) *visit {
	if n < 0 {
		return &w.locks[-1-n].visit
	}
	return &w.processes[n].visit
}

// walkFrom visits n and everything reachable from it.
func (w *walk) walkFrom(n int) {
	here := w.at(n)
	*here = visit{turn: w.turn, met: w.met, low: w.met}
	w.met++
	w.path = append(w.path, n)
	w.each(n, func(next int) {
		there := w.at(next)
		if there.turn != w.turn {
			w.walkFrom(next)
		}
		if !there.done {
			here.low = min(here.low, there.low)
		}
	})
	if here.low == here.met {
		w.close(n)
	}
}

// each calls f for every successor of n.
func (w *walk) each(n int, f func(next int)) {
	if n < 0 {
		for _, who := range w.blockedBy(-1 - n) {
			f(who)
		}
		return
	}
	for _, wait := range w.processes[n].waits {
		if w.blocked(wait.lock) {
			f(-1 - wait.lock)
		}
	}
}

// close completes the component that began with n.
func (w *walk) close(n int) {
	var group []int
	for last := n + 1; last != n; {
		last = w.path[len(w.path)-1]
		w.path = w.path[:len(w.path)-1]
		if w.at(last).done = true; last >= 0 {
			group = append(group, last)
		}
	}
	if len(group) > 1 {
		w.found = append(w.found, group)
	}
}
