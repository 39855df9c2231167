package locks

import "sort"

// changes are how a snapshot differs from the one before.
type changes struct {
	few  bool   // so that it pays to begin with what is known of the snapshot before
	came []*Row // rows that the snapshot before had not, by name
	went []*Row // rows that only the snapshot before had, by name
}

// newChanges returns how rows came and went in a snapshot of this size. Many changes are not worth remembering.
func newChanges(came, went []*Row, all int) changes {
	if len(came)+len(went) >= all/4 {
		return changes{}
	}
	return changes{true, came, went}
}

// merge is a sorted list of the snapshot before as it is in this one: without the rows that went, with those that came
// put in. The runs in which nothing changed are taken over.
func (c *changes) merge(o Order, old Rows, came []*Row) Rows {
	went := o.Sort(c.went)
	came = o.Sort(came)
	var b builder
	rest := old.runs
	for len(rest) > 0 && len(went)+len(came) > 0 {
		first := o.first(went, came)
		k := sort.Search(len(rest)-1, func(k int) bool { return !o.less(rest[k].last(), first) })
		b.keep(rest[:k]...)
		r := rest[k]
		rest = rest[k+1:]
		goes, comes := o.upTo(went, r.last()), o.upTo(came, r.last())
		b.put(o.replace(r.rows, went[:goes], came[:comes]))
		went, came = went[goes:], came[comes:]
	}
	b.keep(rest...)
	b.put(came) // behind all that were there
	return b.list()
}

// first is the first row of two lists in this order, of which one may be empty.
func (o Order) first(a, b []*Row) *Row {
	if len(a) == 0 || len(b) > 0 && o.less(b[0], a[0]) {
		return b[0]
	}
	return a[0]
}

// upTo is how many of the rows, which are in this order, are not behind r.
func (o Order) upTo(rows []*Row, r *Row) int {
	return sort.Search(len(rows), func(i int) bool { return o.less(r, rows[i]) })
}

// replace returns rows without those that went, as far as they are among them, and with those that came put in. All are
// in this order.
func (o Order) replace(old, went, came []*Row) []*Row {
	out := make([]*Row, 0, len(old)+len(came))
	for len(went) > 0 || len(came) > 0 {
		r := o.first(went, came)
		before := sort.Search(len(old), func(i int) bool { return !o.less(old[i], r) })
		out, old = append(out, old[:before]...), old[before:]
		if len(went) == 0 || r != went[0] {
			out, came = append(out, r), came[1:]
			continue
		}
		went = went[1:]
		if len(old) > 0 && old[0] == r {
			old = old[1:]
		}
	}
	return append(out, old...)
}
