package deadlock

// maxDepth bounds how often a knot is looked into for smaller ones. Programs that were written to get something done need two or three.
const maxDepth = 100

// knots are the groups among the processes of which none gets on even if everybody else does, each as small as it can be. A group that hangs
// together only by permits that somebody outside of it can give back falls apart when it is looked at alone.
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

// part is the graph as it is when all processes but some get on and give back what they hold.
type part struct {
	*graph
	stuck map[int]bool
	kept  map[int]*kept // locks
}

// kept is by how many of the stuck a lock is kept.
type kept struct{ alone, permits int }

func (g *graph) only(among []int) *part {
	p := &part{g, make(map[int]bool, len(among)), map[int]*kept{}}
	for _, who := range among {
		p.stuck[who] = true
	}
	return p
}

// keeps tells whether nobody gets the lock: somebody who is stuck has it for himself or reads, or all permits are with those.
func (p *part) keeps(lock int) bool { return p.count(lock).alone > 0 || p.exhausted(lock) }

// exhausted tells whether no permit of the semaphore will be given back.
func (p *part) exhausted(lock int) bool {
	c := &p.locks[lock]
	return len(c.permits) > 0 && !c.nobody && p.count(lock).permits == len(c.permits)
}

func (p *part) count(lock int) *kept {
	k := p.kept[lock]
	if k == nil {
		k = &kept{p.ofStuck(p.locks[lock].alone), p.ofStuck(p.locks[lock].permits)}
		p.kept[lock] = k
	}
	return k
}

func (p *part) ofStuck(holds []hold) (n int) {
	for _, h := range holds {
		if p.stuck[h.who] {
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
		if p.stuck[h.who] {
			all = append(all, h.who)
		}
	}
	return all
}
