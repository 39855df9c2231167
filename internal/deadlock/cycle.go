package deadlock

import (
	"slices"
	"strings"
	"time"
)

// circle tells a knot to people: along the waits, beginning with the first process.
func (g *graph) circle(knot []int) Circle {
	slices.SortFunc(knot, func(a, b int) int { return g.processes[a].Compare(g.processes[b].Process) })
	t := teller{part: g.only(knot), held: map[int]*held{}, told: map[int]bool{}}
	for _, p := range knot {
		t.tell(p)
	}
	return t.circle
}

type teller struct {
	*part
	held   map[int]*held
	told   map[int]bool // processes
	circle Circle
}

// held is by whom of the knot a lock is kept, and since when.
type held struct {
	by        []int
	processes []Process
	since     time.Time
	followed  bool
}

func (t *teller) tell(p int) {
	if t.told[p] {
		return
	}
	t.told[p] = true
	n := &t.processes[p]
	waits := slices.SortedFunc(slices.Values(n.waits),
		func(a, b wait) int { return strings.Compare(t.locks[a.lock].name, t.locks[b.lock].name) })
	for _, w := range waits {
		if !t.keeps(w.lock) {
			continue
		}
		h := t.heldBy(w.lock)
		step := Wait{Who: n.Process, Lock: t.locks[w.lock].name, Held: h.processes, Since: later(w.since, h.since)}
		t.circle.Waits = append(t.circle.Waits, step)
		t.circle.Since = later(t.circle.Since, step.Since)
		if !h.followed {
			h.followed = true
			for _, by := range h.by {
				t.tell(by)
			}
		}
	}
}

func (t *teller) heldBy(lock int) *held {
	if h := t.held[lock]; h != nil {
		return h
	}
	h := &held{by: t.keepers(lock), since: t.since(lock)}
	slices.SortFunc(h.by, func(a, b int) int { return t.processes[a].Compare(t.processes[b].Process) })
	h.by = slices.Compact(h.by)
	for _, p := range h.by {
		h.processes = append(h.processes, t.processes[p].Process)
	}
	t.held[lock] = h
	return h
}

// since is when the lock came to be kept by those of the knot: when the first of its readers took it, or when the last
// permit was taken.
func (t *teller) since(lock int) (since time.Time) {
	c := &t.locks[lock]
	for _, h := range c.alone {
		if t.stuck(h.who) && (since.IsZero() || h.since.Before(since)) {
			since = h.since
		}
	}
	if !since.IsZero() || !t.exhausted(lock) {
		return since
	}
	for _, h := range c.permits {
		since = later(since, h.since)
	}
	return since
}
