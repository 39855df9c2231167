package deadlock

// maxDepth bounds how often a component is split into smaller ones. Real programs need two or three.
const maxDepth = 100

// deadlocked returns the groups of processes none of which makes progress even if all others do, each as small as
// possible. A strongly connected component that only holds together by permits that a process outside of it can return
// falls apart when it is looked at alone.
func (g *graph) deadlocked(among []int, depth int) (found [][]int) {
	groups := g.only(among).components(among)
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

// subgraph is the graph that remains if all processes but some make progress and release what they hold. There is one
// at a time: the marks of the next one overwrite it, at no cost for processes outside of that.
type subgraph struct {
	*graph
	turn int
}

// only returns the subgraph in which exactly these processes are stuck.
func (g *graph) only(among []int) *subgraph {
	g.turn++
	for _, who := range among {
		g.processes[who].stuck = g.turn
	}
	return &subgraph{g, g.turn}
}

func (s *subgraph) stuck(who int) bool { return s.processes[who].stuck == s.turn }

// blocked reports whether no waiter can get the lock: a stuck process holds it alone or reads, or stuck processes hold
// all permits.
func (s *subgraph) blocked(lock int) bool { return s.count(lock).alone > 0 || s.exhausted(lock) }

// exhausted reports whether no permit of the semaphore will be returned.
func (s *subgraph) exhausted(lock int) bool {
	c := &s.locks[lock]
	return len(c.permits) > 0 && !c.unknown && s.count(lock).permits == len(c.permits)
}

// count counts the holds of the lock by stuck processes.
func (s *subgraph) count(lock int) *blockers {
	k := &s.locks[lock].blockers
	if k.turn != s.turn {
		*k = blockers{s.turn, s.ofStuck(s.locks[lock].alone), s.ofStuck(s.locks[lock].permits)}
	}
	return k
}

func (s *subgraph) ofStuck(holds []hold) (n int) {
	for _, h := range holds {
		if s.stuck(h.who) {
			n++
		}
	}
	return n
}

// blockedBy returns the stuck processes that block the lock, each as often as it holds it.
func (s *subgraph) blockedBy(lock int) (all []int) {
	c := &s.locks[lock]
	holds := c.alone
	if s.exhausted(lock) {
		holds = append(holds[:len(holds):len(holds)], c.permits...)
	}
	for _, h := range holds {
		if s.stuck(h.who) {
			all = append(all, h.who)
		}
	}
	return all
}
