package deadlock

// maxDepth bounds how often a knot is looked into for smaller ones. Programs that were written to get something done
// need two or three.
const maxDepth = 100

// knots are the groups among the processes of which none gets on even if everybody else does, each as small as it can
// be. A group that hangs together only by permits that somebody outside of it can give back falls apart when it is
// looked at alone.
func (g *graph) knots(among []int, depth int) (found [][]int) {
	groups := g.only(among).groups(among)
	if len(groups) == 1 && len(groups[0]) == len(among) {
		return groups
	}
	if depth == maxDepth {
		return nil
	}
	for _, group := range groups {
		found = append(found, g.knots(group, depth+1)...)
	}
	return found
}

// part is the graph as it is when all processes but some get on and give back what they hold. There is one at a time:
// the marks of the next one overwrite it, which costs nothing for those who are not part of that.
type part struct {
	*graph
	turn int
}

func (g *graph) only(among []int) *part {
	g.turn++
	for _, who := range among {
		g.processes[who].stuck = g.turn
	}
	return &part{g, g.turn}
}

func (p *part) stuck(who int) bool { return p.processes[who].stuck == p.turn }

// keeps tells whether nobody gets the lock: somebody who is stuck has it for himself or reads, or all permits are with
// those.
func (p *part) keeps(lock int) bool { return p.count(lock).alone > 0 || p.exhausted(lock) }

// exhausted tells whether no permit of the semaphore will be given back.
func (p *part) exhausted(lock int) bool {
	c := &p.locks[lock]
	return len(c.permits) > 0 && !c.nobody && p.count(lock).permits == len(c.permits)
}

// count is by how many of the stuck the lock is kept.
func (p *part) count(lock int) *kept {
	k := &p.locks[lock].kept
	if k.turn != p.turn {
		*k = kept{p.turn, p.ofStuck(p.locks[lock].alone), p.ofStuck(p.locks[lock].permits)}
	}
	return k
}

func (p *part) ofStuck(holds []hold) (n int) {
	for _, h := range holds {
		if p.stuck(h.who) {
			n++
		}
	}
	return n
}

// keepers are the stuck who keep the lock, each as often as it holds it.
func (p *part) keepers(lock int) (all []int) {
	c := &p.locks[lock]
	holds := c.alone
	if p.exhausted(lock) {
		holds = append(holds[:len(holds):len(holds)], c.permits...)
	}
	for _, h := range holds {
		if p.stuck(h.who) {
			all = append(all, h.who)
		}
	}
	return all
}
