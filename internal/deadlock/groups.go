package deadlock

// groups are those of the processes who wait for each other, directly or by way of others of the group, two or more: the strongly connected
// components of the graph in which processes lead to the locks that they wait for, and locks to those who keep them (Tarjan).
func (p *part) groups(among []int) [][]int {
	w := walk{part: p, seen: map[int]*place{}}
	for _, who := range among {
		if w.seen[who] == nil {
			w.visit(who)
		}
	}
	return w.found
}

// walk goes along the graph. Locks have negative numbers in it, from -1 down.
type walk struct {
	*part
	seen  map[int]*place
	path  []int
	found [][]int
}

// place is where on the walk a node was met, and the first one that is reached from it.
type place struct {
	met, low int
	done     bool
}

func (w *walk) visit(n int) *place {
	at := &place{met: len(w.seen), low: len(w.seen)}
	w.seen[n] = at
	w.path = append(w.path, n)
	w.each(n, func(next int) {
		there := w.seen[next]
		if there == nil {
			there = w.visit(next)
		}
		if !there.done {
			at.low = min(at.low, there.low)
		}
	})
	if at.low == at.met {
		w.close(n)
	}
	return at
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
		if w.seen[last].done = true; last >= 0 {
			group = append(group, last)
		}
	}
	if len(group) > 1 {
		w.found = append(w.found, group)
	}
}
