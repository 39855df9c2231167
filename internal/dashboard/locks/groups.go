package locks

import (
	"cmp"
	"slices"
)

// Group is the locks of one owner in a result.
type Group struct {
	Owner   string
	Display DisplayState // the worst
	Counts
	Rows []*Row // the first ones, in the order of the result
}

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
		r.groups = byOwner(r.Rows)
		slices.SortFunc(r.groups, func(a, b *Group) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(Instant(a.Longest), Instant(b.Longest)),
				cmp.Compare(a.Display.Urgency(), b.Display.Urgency()), cmp.Compare(b.Late(), a.Late()),
				cmp.Compare(b.Total, a.Total), cmp.Compare(a.unknown(), b.unknown()), cmp.Compare(a.Owner, b.Owner))
		})
	})
	return r.groups
}

func byOwner(rows []*Row) (groups []*Group) {
	known := map[string]*Group{}
	for _, r := range rows {
		g := known[r.Owner]
		if g == nil {
			g = &Group{Owner: r.Owner, Display: r.Display}
			known[r.Owner] = g
			groups = append(groups, g)
		}
		g.add(r)
		if r.Display.Urgency() < g.Display.Urgency() {
			g.Display = r.Display
		}
		if len(g.Rows) < maxGroupRows {
			g.Rows = append(g.Rows, r)
		}
	}
	return groups
}
