package locks

import (
	"cmp"
	"maps"
	"slices"
)

// Group is the locks of one owner in a result.
type Group struct {
	Owner   string
	Display DisplayState // the worst
	Counts
	Rows []*Row // the first ones, in the order of the result
}

// Late is how many need a person.
func (g *Group) Late() int { return g.Alerting + g.Abandoned + g.Expired }

// maxGroupRows is how many rows of a group are kept: more are a list of their own.
const maxGroupRows = 50

// unknown is 1 for the locks of nobody in particular.
func (g *Group) unknown() int {
	if g.Owner == "" {
		return 1
	}
	return 0
}

// ByOwner divides the result among owners: first who blocks most, then who needs a person. It is done once for all who
// ask.
func (r *Result) ByOwner() []*Group {
	r.grouping.Do(func() {
		parts := stretchesOf(r.Rows.runs, r.older)
		r.older = nil
		inPieces(len(parts), minPiece/runSize/stretchRuns, func(from, to int) struct{} {
			for i := range parts[from:to] {
				parts[from+i].group()
			}
			return struct{}{}
		})
		all := map[string]*Group{}
		for _, part := range parts {
			for i := range part.groups {
				join(all, &part.groups[i])
			}
		}
		r.stretches.Store(&parts)
		r.groups = slices.Collect(maps.Values(all))
		slices.SortFunc(r.groups, func(a, b *Group) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(Instant(a.Longest), Instant(b.Longest)),
				cmp.Compare(a.Display.urgency(), b.Display.urgency()), cmp.Compare(b.Late(), a.Late()),
				cmp.Compare(b.Total, a.Total), cmp.Compare(a.unknown(), b.unknown()), cmp.Compare(a.Owner, b.Owner))
		})
	})
	return r.groups
}

// stretchRuns is how many runs a new stretch has.
const stretchRuns = 16

// stretch is runs that follow each other in a list, and their groups. Where lists have many runs, most of which stay as
// they are, adding up stretches is faster.
type stretch struct {
	runs   []*run
	groups []Group // nil: not known yet
}

// stretchesOf divides runs. The stretches of an older list are taken over where the runs are the same.
func stretchesOf(runs []*run, older []stretch) []stretch {
	begins := make(map[*run]*stretch, len(older))
	for i := range older {
		begins[older[i].runs[0]] = &older[i]
	}
	parts := make([]stretch, 0, len(older)+len(runs)/stretchRuns+1)
	for len(runs) > 0 {
		var groups []Group
		n := 1
		same := begins[runs[0]]
		if same != nil && len(same.runs) <= len(runs) && slices.Equal(same.runs, runs[:len(same.runs)]) {
			n, groups = len(same.runs), same.groups
		} else {
			for n < min(len(runs), stretchRuns) && begins[runs[n]] == nil {
				n++
			}
		}
		parts = append(parts, stretch{runs[:n], groups})
		runs = runs[n:]
	}
	return parts
}

// group finds the groups of the stretch.
func (s *stretch) group() {
	if s.groups != nil {
		return
	}
	all := map[string]*Group{}
	for _, r := range s.runs {
		groups := r.byOwner()
		for i := range groups {
			join(all, &groups[i])
		}
	}
	for _, g := range all {
		s.groups = append(s.groups, *g)
	}
}

// byOwner divides the rows of a run. The groups are shared by all lists with the run.
func (r *run) byOwner() []Group {
	r.grouping.Do(func() { r.groups = byOwner(r.rows) })
	return r.groups
}

// byOwner divides some rows.
func byOwner(rows []*Row) (all []Group) {
	places := map[string]int{}
	for _, row := range rows {
		i, known := places[row.Owner]
		if !known {
			i = len(all)
			places[row.Owner] = i
			all = append(all, Group{Owner: row.Owner, Display: row.Display})
		}
		g := &all[i]
		if g.add(row); row.Display.urgency() < g.Display.urgency() {
			g.Display = row.Display
		}
		if len(g.Rows) < maxGroupRows {
			g.Rows = append(g.Rows, row)
		}
	}
	return all
}

// join adds the group of some rows that follow, which stays as it is.
func join(all map[string]*Group, next *Group) {
	g := all[next.Owner]
	if g == nil {
		g = &Group{Owner: next.Owner, Display: next.Display}
		all[next.Owner] = g
	}
	g.sum(&next.Counts)
	if next.Display.urgency() < g.Display.urgency() {
		g.Display = next.Display
	}
	g.Rows = append(g.Rows, next.Rows[:min(len(next.Rows), maxGroupRows-len(g.Rows))]...)
}
