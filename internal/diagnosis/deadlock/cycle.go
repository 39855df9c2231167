package deadlock

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// cycle describes a deadlocked group: its waits in the order of a walk that begins with the first process.
func (g *graph) cycle(group []int) Cycle {
	slices.SortFunc(group, func(a, b int) int { return g.processes[a].Compare(g.processes[b].Process) })
	t := tracer{subgraph: g.subgraphOf(group), held: map[int]*held{}, visited: map[int]bool{}}
	for _, p := range group {
		t.trace(p)
	}
	return t.cycle
}

// tracer follows the waits of a group.
type tracer struct {
	*subgraph
	held    map[int]*held
	visited map[int]bool // processes
	cycle   Cycle
}

// held is which processes of the group block a lock, and since when.
type held struct {
	by        []int
	processes []Process
	since     time.Time
	followed  bool
}

// trace adds the waits of process p, and then those of the processes that block it.
func (t *tracer) trace(p int) {
	if t.visited[p] {
		return
	}
	t.visited[p] = true
	n := &t.processes[p]
	waits := slices.SortedFunc(slices.Values(n.waits),
		func(a, b wait) int { return strings.Compare(t.locks[a.lock].name, t.locks[b.lock].name) })
	for _, w := range waits {
		if len(t.blockedBy(w.lock)) == 0 {
			continue
		}
		h := t.heldBy(w.lock)
		step := Wait{Who: n.Process, Lock: t.locks[w.lock].name, Held: h.processes,
			Since: protocol.Later(w.since, h.since)}
		t.cycle.Waits = append(t.cycle.Waits, step)
		t.cycle.Since = protocol.Later(t.cycle.Since, step.Since)
		if !h.followed {
			h.followed = true
			for _, by := range h.by {
				t.trace(by)
			}
		}
	}
}

func (t *tracer) heldBy(lock int) *held {
	if h := t.held[lock]; h != nil {
		return h
	}
	h := &held{by: slices.Clone(t.blockedBy(lock)), since: t.since(lock)}
	slices.SortFunc(h.by, func(a, b int) int { return t.processes[a].Compare(t.processes[b].Process) })
	h.by = slices.Compact(h.by)
	for _, p := range h.by {
		h.processes = append(h.processes, t.processes[p].Process)
	}
	t.held[lock] = h
	return h
}

// since returns when the group began to block the lock: when the first of its readers took it, or when the last permit
// was taken.
func (t *tracer) since(lock int) (since time.Time) {
	c := &t.locks[lock]
	for _, h := range c.blocking {
		if t.stuck[h.who] {
			since = protocol.Earlier(since, h.since)
		}
	}
	if len(t.stuckAmong(c.blocking)) > 0 {
		return since
	}
	for _, h := range c.permits {
		since = protocol.Later(since, h.since)
	}
	return since
}

// components returns the groups of processes that wait for each other, directly or through others of the group, or for
// themselves: the strongly connected components (Tarjan) of the graph in which processes lead to the locks they wait
// for, and locks to the processes that block them.
func (s *subgraph) components(among []int) [][]int {
	w := walk{subgraph: s, visits: map[int]*visit{}}
	for _, who := range among {
		if w.visits[who] == nil {
			w.walkFrom(who)
		}
	}
	return w.found
}

// walk is a depth-first walk of the graph. Locks have negative numbers, from -1 down.
type walk struct {
	*subgraph
	visits map[int]*visit // by node
	path   []int
	found  [][]int
}

// visit is when the walk met a node, and the earliest node reachable from it.
type visit struct {
	met, low int
	done     bool
}

// walkFrom visits n and everything reachable from it.
func (w *walk) walkFrom(n int) {
	met := len(w.visits)
	here := &visit{met: met, low: met}
	w.visits[n] = here
	w.path = append(w.path, n)
	w.each(n, func(next int) {
		if w.visits[next] == nil {
			w.walkFrom(next)
		}
		if there := w.visits[next]; !there.done {
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
		if len(w.blockedBy(wait.lock)) > 0 {
			f(-1 - wait.lock)
		}
	}
}

// close completes the component that began with n.
func (w *walk) close(n int) {
	var group []int
	size := 0 // with the locks
	for last := n + 1; last != n; size++ {
		last = w.path[len(w.path)-1]
		w.path = w.path[:len(w.path)-1]
		if w.visits[last].done = true; last >= 0 {
			group = append(group, last)
		}
	}
	if size > 1 {
		w.found = append(w.found, group)
	}
}
