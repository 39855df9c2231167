package dashboard

import (
	"strconv"
)

// fillControls adds what filters and sorts.
func (d *Dashboard) fillControls(v *listPage, s *snapshot, l listRequest, found *result) {
	c := found.counts
	for _, count := range []countView{{Look: held, N: c.Held}, {Look: alerting, N: c.Alerting}, {Look: expiring, N: c.Expiring},
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
		v.Waiting = say(thousands(c.Waiting) + " waiting")
		if longest := v.age(c.Longest); longest != nil {
			v.Waiting = v.Waiting.say(" (longest ").time(longest).say(")")
		}
	}
	for i, t := range l.query.terms {
		v.Chips = append(v.Chips, chip{t.text, l.link(d.urls, func(l *listRequest) { l.query.text = l.query.without(i) })})
	}
	if row := s.find(l.query.text); row != nil && len(l.query.text) <= maxQueryBytes {
		v.Jump = &lockLink{row.Name, d.urls.Lock(row.Name, row.UUID)}
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
	v.Columns = d.columns(l)
}

// columns are the heads of the table; each is a link that sorts by it, and the other way round the second time.
func (d *Dashboard) columns(l listRequest) []column {
	columns := []struct{ title, short, by string }{
		{"State", "", "urgency"}, {"Lock", "", "name"}, {"Owner", "", "owner"}, {"Host:pid", "", "host"}, {"Held", "", "held"},
		{"Alert", "", "alert"}, {"Auto-unlock", "", "unlock"}, {"Waiters", "W", "waiters"},
	}
	out := make([]column, len(columns))
	for i, c := range columns {
		o, aria := order{by: c.by}, ""
		if l.order.by == c.by {
			aria, o.reverse = "ascending", !l.order.reverse
			if l.order.reverse {
				aria = "descending"
			}
		}
		out[i] = column{c.title, c.short, l.link(d.urls, func(l *listRequest) { l.order = o }), aria}
	}
	return out
}
