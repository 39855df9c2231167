package pages

import (
	"slices"
	"strconv"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
)

// fillControls adds what filters and sorts.
func (d *Pages) fillControls(v *listPage, s *locks.Snapshot, l ListRequest, found *locks.Result) {
	d.fillCounts(v, l, found.Counts)
	for i, t := range l.Query.Terms {
		v.Chips = append(v.Chips, chip{t.Text,
			l.link(d.Urls, func(l *ListRequest) { l.Query.Text = l.Query.Without(i) })})
	}
	if name := l.Query.Text; len(name) > locks.MaxQueryBytes {
		v.Jump = nil
	} else if row := s.Find(name); row != nil {
		v.Jump = &lockLink{row.Name, d.Urls.Lock(row.Name, row.UUID)}
	} else if len(s.Shares(name)) > 0 {
		v.Jump = &lockLink{name, d.Urls.Lock(name, "")}
	}
	d.fillView(v, l)
}

// fillCounts adds how many locks are in each state, and how many processes wait.
func (d *Pages) fillCounts(v *listPage, l ListRequest, c locks.Counts) {
	for _, count := range []countView{{Look: locks.Held, N: c.Held}, {Look: locks.Alerting, N: c.Alerting},
		{Look: locks.Expiring, N: c.Expiring},
		{Look: locks.Expired, N: c.Expired}, {Look: locks.Malformed, N: c.Malformed},
		{Look: locks.Abandoned, N: c.Abandoned}} {
		word := "state:" + string(count.Look)
		for _, t := range l.Query.Terms {
			count.On = count.On || t.Text == word
		}
		count.URL = l.link(d.Urls, func(l *ListRequest) {
			if l.Query.Text = l.Query.With(word); count.On {
				l.Query.Text = l.Query.Dropping(word)
			}
		})
		v.Counts = append(v.Counts, count)
	}
	if d.Config.Queues != nil {
		v.Waiting = phrase.Say(phrase.Thousands(c.Waiting) + " waiting")
		if longest := v.Lasting(c.Longest); longest != nil {
			v.Waiting = v.Waiting.Say(" (longest ").Time(longest).Say(")")
		}
	}
}

// fillView adds the choices of how the list is shown.
func (d *Pages) fillView(v *listPage, l ListRequest) {
	for _, n := range pageLimits() {
		link := choice{Text: strconv.Itoa(n)}
		if n != l.Limit {
			link.URL = l.link(d.Urls, func(l *ListRequest) { l.Limit = n })
		}
		v.Limits = append(v.Limits, link)
	}
	v.Density = choice{"details for all", l.link(d.Urls, func(l *ListRequest) { l.full = true })}
	if l.full {
		v.Density = choice{"details only where needed", l.link(d.Urls, func(l *ListRequest) { l.full = false })}
	}
	for _, name := range extraColumns() {
		v.Shown = append(v.Shown, toggle{name, l.link(d.Urls, func(l *ListRequest) { l.cols = toggled(l.cols, name) }),
			slices.Contains(l.cols, name)})
	}
	v.Group = choice{"group by owner", l.link(d.Urls, func(l *ListRequest) { l.group = true })}
	if l.group {
		v.Group = choice{"one list", l.link(d.Urls, func(l *ListRequest) { l.group = false })}
	}
}
