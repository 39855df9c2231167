package deadlock

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// graph is who waits for what, and who holds that. Only locks that somebody waits for are in it.
type graph struct {
	processes []node
	index     map[Process]int
	locks     []contended
	turn      int // of the marks
}

// node is a process.
type node struct {
	Process
	waits []wait
	holds int // the last lock that was noted that it holds and somebody waits for, counted from 1
	stuck int // in this turn
	place place
}

type wait struct {
	lock  int
	since time.Time // by the clock of who waits; the earliest of several tickets
}

// contended is a lock that somebody waits for.
type contended struct {
	name    string
	alone   []hold
	permits []hold // of a semaphore
	nobody  bool   // somebody who can not be told from others has permits, too: they may be given back at any time
	kept    kept
	place   place
}

// kept is by how many processes a lock is kept in a turn.
type kept struct{ turn, alone, permits int }

type hold struct {
	who   int
	since time.Time
}

func newGraph(locks []*metadata.Record, queues map[string][]metadata.Waiter) *graph {
	g := &graph{index: map[Process]int{}}
	for lock, queue := range queues {
		if holders := holders(locks, lock); len(queue) > 0 && len(holders) > 0 {
			g.add(lock, queue, holders)
		}
	}
	return g
}

// holders are the records of those who hold the lock, alone or together. Without a token it is held by nobody.
func holders(locks []*metadata.Record, lock string) (all []*metadata.Record) {
	rest := from(locks, lock)
	if len(rest) > 0 && rest[0].Name == lock {
		if rest[0].Token != 0 {
			all = append(all, rest[0])
		}
		rest = rest[1:]
	}
	if first := lock + "#1"; len(rest) > 0 && rest[0].Name < first { // rarely: there are names with a blank behind
		rest = from(rest, first)
	}
	for _, r := range rest {
		if !strings.HasPrefix(r.Name, lock+"#") || r.Name[len(lock)+1] > '9' {
			break
		}
		if of, _, ok := metadata.ParseShare(r.Name); ok && of == lock && r.Token != 0 && kindOf(r) != "" {
			all = append(all, r)
		}
	}
	return all
}

// from is the locks from a name on.
func from(locks []*metadata.Record, name string) []*metadata.Record {
	i, _ := slices.BinarySearchFunc(locks, name,
		func(r *metadata.Record, name string) int { return strings.Compare(r.Name, name) })
	return locks[i:]
}

// kindOf is what a record with the name of a share is: permits, or a reader. Names alone prove nothing: anybody may
// call a lock "build#7".
func kindOf(r *metadata.Record) string {
	switch kind, _ := r.Attributes[metadata.AttributeKind].(string); kind {
	case metadata.HoldsPermits, metadata.HoldsShared:
		return kind
	}
	return ""
}

func (g *graph) add(lock string, queue []metadata.Waiter, holders []*metadata.Record) {
	c := contended{name: lock}
	number := len(g.locks) + 1
	for _, r := range holders {
		who, known := g.process(Process{r.Owner, r.Hostname, r.PID})
		switch permits := r.Name != lock && kindOf(r) == metadata.HoldsPermits; {
		case !known:
			c.nobody = c.nobody || permits
			continue
		case permits:
			c.permits = append(c.permits, hold{who, r.LockedAt})
		default:
			c.alone = append(c.alone, hold{who, r.LockedAt})
		}
		g.processes[who].holds = number
	}
	for i := range queue {
		w := &queue[i]
		who, known := g.process(Process{w.Owner, w.Hostname, w.PID})
		if known && g.processes[who].holds != number {
			g.processes[who].waitFor(number-1, w.Since.Time)
		}
	}
	g.locks = append(g.locks, c)
}

// process is the number of p; known is false where p could be anybody.
func (g *graph) process(p Process) (number int, known bool) {
	if !p.known() {
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

// waitFor notes a ticket. If it is not the first one of the process for this lock, that one was noted last.
func (n *node) waitFor(lock int, since time.Time) {
	last := len(n.waits) - 1
	switch {
	case last < 0 || n.waits[last].lock != lock:
		n.waits = append(n.waits, wait{lock, since})
	case compareTimes(since, n.waits[last].since) < 0:
		n.waits[last].since = since
	}
}

// everybody who both waits and holds: nobody else is part of a circle.
func (g *graph) everybody() (all []int) {
	for i := range g.processes {
		if p := &g.processes[i]; len(p.waits) > 0 && p.holds > 0 {
			all = append(all, i)
		}
	}
	return all
}
