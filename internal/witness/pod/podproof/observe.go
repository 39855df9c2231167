package podproof

import "time"

// Observe returns the current pod, with what is known from watching it: before is the pod as it was last seen, nil if
// it was not. before was known to be true up to the moment confirmed.
func Observe(before *Pod, now Pod, confirmed, at time.Duration) *Pod {
	now.Gone = Never
	if now.Deleting != Never && before != nil && before.Deleting != Never {
		now.Deleting = before.Deleting
	} else if now.Deleting != Never {
		now.Deleting = at
	}
	if before != nil {
		now.Confirmed = before.Confirmed // changes since then had not happened yet
		confirmed = max(confirmed, before.Confirmed)
	}
	for i := range now.Containers {
		now.Containers[i].observe(before, confirmed)
	}
	return &now
}

// observe sets since when the incarnation has existed and since when it has ended.
func (c *Container) observe(before *Pod, confirmed time.Duration) {
	c.NewSince = Never
	c.EndedSince = Never
	if before == nil {
		return
	}
	was := before.container(c.Name)
	switch {
	case was == nil || was.ID != c.ID:
		c.NewSince = confirmed
		c.EndedSince = confirmed
	case was.End != nil:
		c.NewSince = was.NewSince
		c.EndedSince = was.EndedSince
	default:
		c.NewSince = was.NewSince
		c.EndedSince = confirmed
	}
}

// Vanish returns the pod as one that is gone.
func Vanish(p *Pod, at time.Duration, lost bool) *Pod {
	gone := *p
	gone.Gone = at
	gone.Lost = lost
	return &gone
}
