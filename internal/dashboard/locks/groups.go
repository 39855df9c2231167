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
		for _, some := range inPieces(len(r.Rows), minPiece, func(from, to int) map[string]*Group {
			return byOwner(r.Rows[from:to])
		}) {
			for owner, g := range some {
				if first := all[owner]; first != nil {
					first.join(g)
				} else {
					all[owner] = g
				}
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

// byOwner divides some rows.
func byOwner(rows []*Row) map[string]*Group {
	all := map[string]*Group{}
	for _, row := range rows {
		g := all[row.Owner]
		if g == nil {
			g = &Group{Owner: row.Owner, Display: row.Display}
			all[row.Owner] = g
		}
		if g.add(row); row.Display.urgency() < g.Display.urgency() {
			g.Display = row.Display
		}
		if len(g.Rows) < maxGroupRows {
			g.Rows = append(g.Rows, row)
		}
	}
	return all
}

// join adds the rows of the same owner that follow.
func (g *Group) join(o *Group) {
	g.sum(&o.Counts)
	if o.Display.urgency() < g.Display.urgency() {
		g.Display = o.Display
	}
	g.Rows = append(g.Rows, o.Rows[:min(len(o.Rows), maxGroupRows-len(g.Rows))]...)
}
