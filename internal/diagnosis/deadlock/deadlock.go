// Package deadlock finds processes that wait for each other's locks, so that none of them makes progress. Page, metric,
// alert and log use the same function.
//
// Records and tickets name processes, not what happens inside them: a process that does several things at once may make
// progress although one of them is stuck. So a cycle is reported, and nothing is ever done about it. A process that
// already holds part of a lock does not count as waiting for it: two jobs of one worker do that all day, and the client
// library refuses a job that asks twice.
//
// A waiter that says under which holds it works, such as one in a command of "mutexctl run", waits for their holders,
// too: the cycle names these.
//
// A lock is blocked by its holder, or by any of its readers. A semaphore is blocked only if all of its holders are
// stuck in the same cycle, because any of them can return the missing permits.
package deadlock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Process is one program as records and tickets name it.
type Process struct {
	Owner, Host string
	PID         int64
}

// Compare orders processes by owner, host and process id.
func (p Process) Compare(q Process) int {
	return cmp.Or(strings.Compare(p.Owner, q.Owner), strings.Compare(p.Host, q.Host), cmp.Compare(p.PID, q.PID))
}

// String returns "billing on host-1:17". Clients wrote the text: escape it.
func (p Process) String() string {
	host := p.Host + ":" + strconv.FormatInt(p.PID, 10)
	if p.Owner == "" {
		return host
	}
	return p.Owner + " on " + host
}

// Wait is one edge of a cycle: a process that waits for a lock.
type Wait struct {
	Who   Process
	Lock  string
	Held  []Process // the processes of the cycle that hold it, sorted; shared: never write to it
	Since time.Time // since when Who has waited while Held held; zero if unknown
}

// Cycle is a set of processes none of which can make progress before another one does. There may be several ways round.
type Cycle struct {
	Waits []Wait // in the order of a walk, from the first process
	// Since is when the last of the waits began, by the clocks of the processes. Every reader gets the same value.
	Since time.Time
}

// Locks returns the names of the locks, sorted.
func (c Cycle) Locks() []string {
	names := make([]string, len(c.Waits))
	for i, w := range c.Waits {
		names[i] = w.Lock
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Processes returns the processes of the cycle, sorted.
func (c Cycle) Processes() []Process {
	all := make([]Process, len(c.Waits))
	for i, w := range c.Waits {
		all[i] = w.Who
	}
	slices.SortFunc(all, Process.Compare)
	return slices.Compact(all)
}

// Labels returns locks and processes as labels of an alert: short, printable, and different for different cycles.
func (c Cycle) Labels() (locksAndHolders [2]string) {
	var names []string
	for _, p := range c.Processes() {
		names = append(names, p.String())
	}
	return [2]string{text.NameLabel(strings.Join(c.Locks(), ", ")), text.NameLabel(strings.Join(names, ", "))}
}

// Find returns the cycles, oldest first. locks are sorted by name. Its cost is proportional to the number of waiters
// and of the holders they wait for, whatever else is held.
func Find(locks []*metadata.Record, queues map[string][]metadata.Waiter) []Cycle {
	g := newGraph(locks, queues)
	var found []Cycle
	for _, group := range g.deadlocked(g.candidates(), 0) {
		found = append(found, g.cycle(group))
	}
	slices.SortFunc(found, func(a, b Cycle) int {
		return cmp.Or(cmp.Compare(protocol.SortableTime(a.Since), protocol.SortableTime(b.Since)),
			a.Waits[0].Who.Compare(b.Waits[0].Who))
	})
	return found
}
