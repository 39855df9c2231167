package locks

// changes are how a snapshot differs from the one before.
type changes struct {
	few  bool              // so that it pays to begin with what is known of the snapshot before
	came []*Row            // rows that the snapshot before had not, by name
	went map[*Row]struct{} // rows that only the snapshot before had
}

// newChanges returns how rows came and went in a snapshot of this size. Many changes are not worth remembering.
func newChanges(came, went []*Row, all int) changes {
	if len(came)+len(went) >= all/4 {
		return changes{}
	}
	c := changes{few: true, came: came, went: make(map[*Row]struct{}, len(went))}
	for _, r := range went {
		c.went[r] = struct{}{}
	}
	return c
}

// merge is a sorted list of the snapshot before as it is in this one: without the rows that went, with those that came
// put in.
func (c *changes) merge(o Order, old, came []*Row) []*Row {
	came = o.Sort(came)
	out := make([]*Row, 0, len(old)+len(came))
	for _, r := range old {
		if _, gone := c.went[r]; gone {
			continue
		}
		for len(came) > 0 && o.less(came[0], r) {
			out, came = append(out, came[0]), came[1:]
		}
		out = append(out, r)
	}
	return append(out, came...)
}
