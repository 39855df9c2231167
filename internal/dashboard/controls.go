package dashboard

import (
	"slices"
	"strconv"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
)

// fillControls adds what filters and sorts.
func (d *Dashboard) fillControls(v *listPage, s *snapshot, l listRequest, found *result) {
	c := found.counts
	for _, count := range []countView{{Look: held, N: c.Held}, {Look: alerting, N: c.Alerting},
		{Look: expiring, N: c.Expiring},
		{Look: expired, N: c.Expired}, {Look: malformed, N: c.Malformed}} {
		word := "state:" + string(count.Look)
		for _, t := range l.query.terms {
			count.On = count.On || t.text == word
		}
		count.URL = l.link(d.urls, func(l *listRequest) {
			if l.query.text = l.query.with(word); count.On {
				l.query.text = l.query.dropping(word)
			}
		})
		v.Counts = append(v.Counts, count)
	}
	if d.config.Queues != nil {
		v.Waiting = phrase.Say(phrase.Thousands(c.Waiting) + " waiting")
		if longest := v.Lasting(c.Longest); longest != nil {
			v.Waiting = v.Waiting.Say(" (longest ").Time(longest).Say(")")
		}
	}
	for i, t := range l.query.terms {
		v.Chips = append(v.Chips, chip{t.text,
			l.link(d.urls, func(l *listRequest) { l.query.text = l.query.without(i) })})
	}
	if name := l.query.text; len(name) > maxQueryBytes {
		v.Jump = nil
	} else if row := s.find(name); row != nil {
		v.Jump = &lockLink{row.Name, d.urls.Lock(row.Name, row.UUID)}
	} else if len(s.shares(name)) > 0 {
		v.Jump = &lockLink{name, d.urls.Lock(name, "")}
	}
	for _, n := range pageLimits() {
		link := choice{Text: strconv.Itoa(n)}
		if n != l.limit {
			link.URL = l.link(d.urls, func(l *listRequest) { l.limit = n })
		}
		v.Limits = append(v.Limits, link)
	}
	v.Density = choice{"details for all", l.link(d.urls, func(l *listRequest) { l.full = true })}
	if l.full {
		v.Density = choice{"details only where needed", l.link(d.urls, func(l *listRequest) { l.full = false })}
	}
	for _, name := range extraColumns() {
		v.Shown = append(v.Shown, toggle{name, l.link(d.urls, func(l *listRequest) { l.cols = toggled(l.cols, name) }),
			slices.Contains(l.cols, name)})
	}
	v.Group = choice{"group by owner", l.link(d.urls, func(l *listRequest) { l.group = true })}
	if l.group {
		v.Group = choice{"one list", l.link(d.urls, func(l *listRequest) { l.group = false })}
	}
}
