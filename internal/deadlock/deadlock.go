// Package deadlock finds processes that wait for each other's locks, so that none of them gets on. Page, metric, alert
// and log ask the same function.
//
// What is known are processes, as records and tickets name them, and not what goes on inside: one that does several
// things at once may get on although one of them is stuck. So a circle is told to people, who can find out, and nothing
// is ever done about it. A process that waits for a lock of which it has a part already is not taken to wait: two jobs
// of one worker do that all day, and a job that asks twice is refused by the client library.
//
// A lock is kept from those who want it by its holder, or by any of its readers. Of a semaphore any holder can give
// what is missing, so it keeps others waiting for ever only when all its holders are stuck in the same circle.
package deadlock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Process is one program as records and tickets name it.
type Process struct {
	Owner, Host string
	PID         int64
}

// known tells whether p says who it is. Those that do not can not be told apart.
func (p Process) known() bool { return p.Host != "" && p.PID != 0 }

// Compare orders processes by owner, host and process id.
func (p Process) Compare(q Process) int {
	return cmp.Or(strings.Compare(p.Owner, q.Owner), strings.Compare(p.Host, q.Host), cmp.Compare(p.PID, q.PID))
}

// String is "billing on host-1:17". It is what others wrote: escape it.
func (p Process) String() string {
	host := p.Host + ":" + strconv.FormatInt(p.PID, 10)
	if p.Owner == "" {
		return host
	}
	return p.Owner + " on " + host
}

// Wait is one step of a circle.
type Wait struct {
	Who   Process
	Lock  string
	Held  []Process // those of the circle that keep it, in order; shared: never write to it
	Since time.Time // when who waited and they held; zero when nobody says
}

// Circle is processes of which none gets on before another one does. There may be several ways round.
type Circle struct {
	Waits []Wait // along the way, from the first of the processes
	// Since is when the last of the waits began, by the clocks of those who wait and hold: the same for everybody who
	// looks.
	Since time.Time
}

// Locks are the names of the locks, in order.
func (c Circle) Locks() []string {
	names := make([]string, len(c.Waits))
	for i, w := range c.Waits {
		names[i] = w.Lock
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Processes are those in the circle, in order.
func (c Circle) Processes() []Process {
	all := make([]Process, len(c.Waits))
	for i, w := range c.Waits {
		all[i] = w.Who
	}
	slices.SortFunc(all, Process.Compare)
	return slices.Compact(all)
}

// Labels are locks and processes as labels of an alert: short, printable, and other ones for other circles.
func (c Circle) Labels() (locks, holders string) {
	var names []string
	for _, p := range c.Processes() {
		names = append(names, p.String())
	}
	return text.NameLabel(strings.Join(c.Locks(), ", ")), text.NameLabel(strings.Join(names, ", "))
}

// Find returns the circles, the oldest first. locks are sorted by name. It costs in proportion to those who wait and to
// the holders of what they wait for, whatever else is held.
func Find(locks []*metadata.Record, queues map[string][]metadata.Waiter) []Circle {
	g := newGraph(locks, queues)
	var found []Circle
	for _, knot := range g.knots(g.everybody(), 0) {
		found = append(found, g.circle(knot))
	}
	slices.SortFunc(found, func(a, b Circle) int {
		return cmp.Or(compareTimes(a.Since, b.Since), a.Waits[0].Who.Compare(b.Waits[0].Who))
	})
	return found
}

// compareTimes puts times that nobody knows last.
func compareTimes(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
