package deadlock

// groups are those of the processes who wait for each other, directly or by way of others of the group, two or more:
// the strongly connected components of the graph in which processes lead to the locks that they wait for, and locks to
// those who keep them (Tarjan).
func (p *part) groups(among []int) [][]int {
	w := walk{part: p}
	for _, who := range among {
		if w.at(who).turn != p.turn {
			w.visit(who)
		}
	}
	return w.found
}

// walk goes along the graph. Locks have negative numbers in it, from -1 down.
type walk struct {
	*part
	met   int // nodes
	path  []int
	found [][]int
}

// place is where on the walk of this turn a node was met, and the first one that is reached from it.
type place struct {
	turn, met, low int
	done           bool
}

func (w *walk) at(n int) *place {
	if n < 0 {
		return &w.locks[-1-n].place
	}
	return &w.processes[n].place
}

func (w *walk) visit(n int) {
	here := w.at(n)
	*here = place{turn: w.turn, met: w.met, low: w.met}
	w.met++
	w.path = append(w.path, n)
	w.each(n, func(next int) {
		there := w.at(next)
		if there.turn != w.turn {
			w.visit(next)
		}
		if !there.done {
			here.low = min(here.low, there.low)
		}
	})
	if here.low == here.met {
		w.close(n)
	}
}

// each calls f for what n leads to.
func (w *walk) each(n int, f func(next int)) {
	if n < 0 {
		for _, who := range w.keepers(-1 - n) {
			f(who)
		}
		return
	}
	for _, wait := range w.processes[n].waits {
		if w.keeps(wait.lock) {
			f(-1 - wait.lock)
		}
	}
}

// close ends the component that began with n.
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
