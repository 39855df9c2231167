package deadlock

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// graph holds which process waits for which lock, and which processes hold it. It contains only locks with waiters.
type graph struct {
	processes []node
	index     map[Process]int
	holders   map[string]int // process, by the uuid of its hold
	locks     []contended
}

// node is a process.
type node struct {
	Process
	waits []wait
	holds int // the last lock added to the graph that the process holds, counted from 1
}

type wait struct {
	lock  int
	since time.Time // by the waiter's clock; the earliest of several tickets
}

type contended struct {
	name     string
	blocking []hold
	permits  []hold // of a semaphore
	unknown  bool   // an unidentified process holds permits, too, and may return them at any time
}

type hold struct {
	who   int
	since time.Time
}

func newGraph(locks []*metadata.Record, queues map[string][]metadata.Waiter) *graph {
	g := &graph{index: map[Process]int{}, holders: map[string]int{}}
	for lock, queue := range queues {
		if holders := holders(locks, lock); len(queue) > 0 && len(holders) > 0 {
			g.addHolders(lock, holders)
		}
	}
	for i := range g.locks {
		g.addWaiters(i, queues[g.locks[i].name])
	}
	return g
}

// holders returns the records that hold the lock, alone or together. A record without a token holds nothing.
func holders(locks []*metadata.Record, lock string) []*metadata.Record {
	whole := inRange(locks, lock, lock+"\x00")
	shares := inRange(locks, lock+"#1", lock+"#:") // ":" follows "9"
	return slices.DeleteFunc(slices.Concat(whole, shares), func(r *metadata.Record) bool {
		return r.Token == 0 || r.Name != lock && r.Share().LockName != lock
	})
}

// inRange returns the locks from a name on and before another name.
func inRange(locks []*metadata.Record, from, to string) []*metadata.Record {
	compare := func(r *metadata.Record, name string) int { return strings.Compare(r.Name, name) }
	i, _ := slices.BinarySearchFunc(locks, from, compare)
	j, _ := slices.BinarySearchFunc(locks, to, compare)
	return locks[i:j]
}

func (g *graph) addHolders(lock string, holders []*metadata.Record) {
	c := contended{name: lock}
	for _, r := range holders {
		who, known := g.process(Process{r.Owner, r.Hostname, r.PID})
		switch permits := r.Name != lock && r.Share().Kind == metadata.KindSemaphore; {
		case !known:
			c.unknown = c.unknown || permits
			continue
		case permits:
			c.permits = append(c.permits, hold{who, r.LockedAt})
		default:
			c.blocking = append(c.blocking, hold{who, r.LockedAt})
		}
		g.holders[r.UUID] = who
	}
	g.locks = append(g.locks, c)
}

// addWaiters adds the waiters for a lock, after the holders of all locks.
func (g *graph) addWaiters(lock int, queue []metadata.Waiter) {
	c := &g.locks[lock]
	for _, h := range slices.Concat(c.blocking, c.permits) {
		g.processes[h.who].holds = lock + 1
	}
	for i := range queue {
		w := &queue[i]
		who, known := g.process(Process{w.Owner, w.Hostname, w.PID})
		if known && g.processes[who].holds != lock+1 {
			g.processes[who].waitFor(lock, w.Since.Time)
		}
		for _, uuid := range strings.Fields(w.Under) { // its holder ends only after the wait, whatever it holds
			if who, known := g.holders[uuid]; known {
				g.processes[who].waitFor(lock, w.Since.Time)
			}
		}
	}
}

// process returns the number of p; known is false if p does not identify itself.
func (g *graph) process(p Process) (number int, known bool) {
	if p.Host == "" || p.PID == 0 { // such processes cannot be told apart
		return 0, false
	}
	number, known = g.index[p]
	if !known {
		number = len(g.processes)
		g.index[p] = number
		g.processes = append(g.processes, node{Process: p})
	}
	return number, true
}

// waitFor adds a ticket. Tickets of one lock are added in a row, so an earlier one of the process for this lock is its
// last wait.
func (n *node) waitFor(lock int, since time.Time) {
	last := len(n.waits) - 1
	switch {
	case last < 0 || n.waits[last].lock != lock:
		n.waits = append(n.waits, wait{lock, since})
	case protocol.SortableTime(since) < protocol.SortableTime(n.waits[last].since):
		n.waits[last].since = since
	}
}

// candidates returns the processes that both wait and hold: no other can be part of a cycle.
func (g *graph) candidates() (all []int) {
	for i := range g.processes {
		if p := &g.processes[i]; len(p.waits) > 0 && p.holds > 0 {
			all = append(all, i)
		}
	}
	return all
}

// maxDepth bounds how often a component is split into smaller ones. Real programs need two or three.
const maxDepth = 100

// deadlocked returns the groups of processes none of which makes progress even if all others do, each as small as
// possible. A strongly connected component that only holds together by permits that a process outside of it can return
// falls apart when it is looked at alone.
func (g *graph) deadlocked(among []int, depth int) (found [][]int) {
	groups := g.subgraphOf(among).components(among)
	if len(groups) == 1 && len(groups[0]) == len(among) {
		return groups
	}
	if depth == maxDepth {
		return nil
	}
	for _, group := range groups {
		found = append(found, g.deadlocked(group, depth+1)...)
	}
	return found
}

// subgraph is the graph that remains if all processes but some make progress and release what they hold.
type subgraph struct {
	*graph
	stuck    map[int]bool // processes
	blockers map[int][]int
}

// subgraphOf returns the subgraph in which exactly these processes are stuck.
func (g *graph) subgraphOf(among []int) *subgraph {
	s := &subgraph{graph: g, stuck: make(map[int]bool, len(among)), blockers: map[int][]int{}}
	for _, who := range among {
		s.stuck[who] = true
	}
	return s
}

// blockedBy returns the stuck processes that keep all waiters from the lock, each as often as it holds it: those that
// hold it alone or read and, if no permit will be returned, those with permits. None means that it is not blocked.
func (s *subgraph) blockedBy(lock int) []int {
	all, known := s.blockers[lock]
	if known {
		return all
	}
	c := &s.locks[lock]
	all = s.stuckAmong(c.blocking)
	if permits := s.stuckAmong(c.permits); !c.unknown && len(permits) == len(c.permits) {
		all = append(all, permits...)
	}
	s.blockers[lock] = all
	return all
}

func (s *subgraph) stuckAmong(holds []hold) (all []int) {
	for _, h := range holds {
		if s.stuck[h.who] {
			all = append(all, h.who)
		}
	}
	return all
}
