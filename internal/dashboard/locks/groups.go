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
		all := map[string]*Group{}
		runs := r.Rows.runs
		for _, some := range inPieces(len(runs), minPiece/runSize, func(from, to int) map[string]*Group {
			groups := map[string]*Group{}
			for _, run := range runs[from:to] {
				for i := range run.byOwner() {
					join(groups, &run.groups[i])
				}
			}
			return groups
		}) {
			for _, g := range some {
				join(all, g)
			}
		}
		r.groups = slices.Collect(maps.Values(all))
		slices.SortFunc(r.groups, func(a, b *Group) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(Instant(a.Longest), Instant(b.Longest)),
				cmp.Compare(a.Display.urgency(), b.Display.urgency()), cmp.Compare(b.Late(), a.Late()),
				cmp.Compare(b.Total, a.Total), cmp.Compare(a.unknown(), b.unknown()), cmp.Compare(a.Owner, b.Owner))
		})
	})
	return r.groups
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
