package locks

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
// put in. What lies between them is copied as it is.
func (c *changes) merge(o Order, old, came []*Row) []*Row {
	went := o.Sort(c.went)
	came = o.Sort(came)
	out := make([]*Row, 0, len(old)+len(came))
	for len(went) > 0 || len(came) > 0 {
		comes := len(went) == 0 || len(came) > 0 && o.less(came[0], went[0])
		next := &went
		if comes {
			next = &came
		}
		r := (*next)[0]
		*next = (*next)[1:]
		before := o.countBefore(old, r)
		out, old = append(out, old[:before]...), old[before:]
		switch {
		case comes:
			out = append(out, r)
		case len(old) > 0 && old[0] == r:
			old = old[1:]
		}
	}
	return append(out, old...)
}
