package dashboard

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// process is one program as records and tickets name it. Programs that do not say who they are can not be told apart.
type process struct {
	owner, host string
	pid         int64
}

// wait is one step of a cycle: a process waits for a lock that another one holds.
type wait struct {
	who  process
	lock string
	held process // by whom
}

const maxCycles = 10

// cycles finds processes that wait for each other: each holds what the one before waits for. They need not be stuck, because a
// process can do several things at once, but nobody else will find it out for them. A process that waits for itself is left out:
// two jobs of one worker do that all day.
func cycles(s *snapshot, queues map[string][]metadata.Waiter) [][]wait {
	waits := map[process][]wait{}
	var order []process
	for lock, queue := range queues {
		for _, holder := range holding(s, lock) {
			for _, w := range queue {
				who := process{w.Owner, w.Hostname, w.PID}
				if !who.known() || !holder.known() || who == holder {
					continue
				}
				if waits[who] == nil {
					order = append(order, who)
				}
				waits[who] = append(waits[who], wait{who, lock, holder})
			}
		}
	}
	slices.SortFunc(order, process.compare)
	for _, list := range waits {
		slices.SortFunc(list, func(a, b wait) int { return strings.Compare(a.lock, b.lock) })
	}
	search := search{waits: waits, done: map[process]bool{}}
	for _, p := range order {
		search.from(p)
	}
	return search.found
}

// holding are the processes without which nobody gets the lock: its holder, or all its readers, because a writer waits for each. Of a
// semaphore any holder can give what is missing, so that only the last one keeps others waiting for sure.
func holding(s *snapshot, lock string) []process {
	rows := s.holders(lock)
	var all []process
	for _, r := range rows {
		p := process{r.Owner, r.Hostname, r.PID}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	if len(all) > 1 && rows[0].share != nil && rows[0].share.kind == metadata.HoldsPermits {
		return nil
	}
	return all
}

// search walks along the waits, each process once.
type search struct {
	waits map[process][]wait
	done  map[process]bool
	path  []wait
	found [][]wait
}

func (s *search) from(p process) {
	if s.done[p] || len(s.found) == maxCycles {
		return
	}
	s.done[p] = true
	for _, w := range s.waits[p] {
		s.path = append(s.path, w)
		if begin := slices.IndexFunc(s.path, func(earlier wait) bool { return earlier.who == w.held }); begin >= 0 && len(s.found) < maxCycles {
			s.found = append(s.found, slices.Clone(s.path[begin:]))
		} else {
			s.from(w.held)
		}
		s.path = s.path[:len(s.path)-1]
	}
}

func (p process) known() bool { return p.host != "" && p.pid != 0 }

func (p process) compare(q process) int {
	if c := strings.Compare(p.owner, q.owner); c != 0 {
		return c
	}
	if c := strings.Compare(p.host, q.host); c != 0 {
		return c
	}
	return int(min(max(p.pid-q.pid, -1), 1))
}

// cycleView is a cycle for people: who waits for which lock of whom.
type cycleView []cycleStep

type cycleStep struct{ Who, Lock, URL, Held string }

func (d *Dashboard) cycleViews(found [][]wait) []cycleView {
	var views []cycleView
	for _, c := range found {
		var v cycleView
		for _, w := range c {
			v = append(v, cycleStep{w.who.shown(), clip(w.lock, maxNameShown), d.urls.Lock(w.lock, ""), w.held.shown()})
		}
		views = append(views, v)
	}
	return views
}

func (p process) shown() string {
	host := hostPID(clip(p.host, maxWordShown), p.pid)
	if p.owner == "" {
		return host
	}
	return clip(p.owner, maxWordShown) + " on " + host
}

// cyclesOf are the cycles that the lock is part of.
func (d *Dashboard) cyclesOf(lock string) []cycleView {
	s, err := d.loaded()
	if err != nil || d.config.Queues == nil {
		return nil
	}
	var with [][]wait
	for _, c := range cycles(s, d.config.Queues()) {
		if slices.ContainsFunc(c, func(w wait) bool { return w.lock == lock }) {
			with = append(with, c)
		}
	}
	return d.cycleViews(with)
}
