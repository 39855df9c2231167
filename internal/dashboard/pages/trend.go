package pages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// trend is the last day of a lock: how many waited, and for how much of each hour it was held and waited for.
type trend struct {
	Lines  []string // points of the curve; a gap in what is known is between two of them
	Title  string   // over what time
	Label  string   // the curve in words
	Source string   // who remembers it, and since when
	Heat   []strip
	Hours  []hourMark
}

// strip is a row of a heat map.
type strip struct {
	Name  string
	Cells []cell
	Label string // the row in words
}

// cell is an hour that is not empty. Class says for how much of it: h1 to h4.
type cell struct {
	X     int
	Class string
}

// hourMark names an hour below a heat map.
type hourMark struct {
	X    int
	Text string
}

// The drawing: an hour is as wide as its slots.
const (
	hourWidth   = trends.Slots / trends.Hours
	curveHeight = 40
)

// trendOf is the last day of the lock that was found, with its holds that are over; nil for a lock that is so young
// that the rest of its page says it all.
func (p *Pages) trendOf(r *site.Request, lock *site.Lock, past []metadata.Ending) *trend {
	points, source, since := p.waited(r, lock.Name)
	holds := holdsOf(lock, past)
	if young(holds, points, r.Now) {
		return nil
	}
	over := spanOf(since, r.Now)
	t := &trend{Source: source, Title: phrase.Capital(strings.TrimPrefix(string(over), "in the "))}
	t.draw(points, p.site.Trends.Since(), over)
	hours := trends.Day(r.Now, holds, points)
	t.Heat = []strip{heldStrip(hours, "Held", over), waitingStrip(hours, "Waited for", over)}
	for i := 0; i < trends.Hours; i += 6 {
		t.Hours = append(t.Hours, hourMark{i * hourWidth, hours[i].From.Format("15:04")})
	}
	return t
}

// holdsOf are the holds of the lock, those that last and those that are over.
func holdsOf(lock *site.Lock, past []metadata.Ending) (holds []trends.Hold) {
	for i := range lock.Shares {
		holds = append(holds, trends.Hold{Begin: lock.Shares[i].LockedAt})
	}
	if lock.Row != nil && lock.Row.Token != 0 {
		holds = append(holds, trends.Hold{Begin: lock.Row.LockedAt})
	}
	for i := range past {
		holds = append(holds, holdOf(&past[i]))
	}
	return holds
}

// young reports whether nothing is known of a lock from before the last hour: no hold, and nobody who waited.
func young(holds []trends.Hold, points []trends.Point, now time.Time) bool {
	hourAgo := now.Add(-time.Hour)
	return !slices.ContainsFunc(holds, func(h trends.Hold) bool { return h.Begin.Before(hourAgo) }) &&
		!slices.ContainsFunc(points, func(p trends.Point) bool { return p.Most > 0 && p.At.Before(hourAgo) })
}

// span is how much of a day somebody remembers, in words.
type span string

const wholeDay span = "in the last 24 hours"

func spanOf(since, now time.Time) span {
	if !since.IsZero() && now.Sub(since) >= 24*time.Hour {
		return wholeDay
	}
	return span("since " + cmp.Or(since, now).UTC().Format("15:04") + " UTC")
}

func holdOf(e *metadata.Ending) trends.Hold {
	return trends.Hold{Begin: e.LockedAt.Time, End: e.EndedAt.Time}
}

// waited is how many waited for the lock: as Prometheus knows it, if it knows anything, else as this dashboard saw it;
// and since when that is remembered.
func (p *Pages) waited(r *site.Request, name string) (points []trends.Point, source string, since time.Time) {
	points = p.site.Trends.Lock(name, r.Now)
	source = "As this dashboard saw it"
	if since = p.site.Trends.Since(); !since.IsZero() {
		source += " since " + phrase.UTC(since)
	}
	source += "."
	if p.site.Remember == nil {
		return points, source, since
	}
	elsewhere, err := p.site.Remember.Lock(r.Context(), name, r.Now)
	switch {
	case err != nil:
		return points, "Prometheus could not be asked (" + err.Error() + "). " + source, since
	case elsewhere == nil:
		return points, "Prometheus has no samples of this lock. " + source, since
	}
	return elsewhere, "From Prometheus, which knows who waited while the lock had a metric of its own.",
		r.Now.Add(-24 * time.Hour)
}

// draw draws the curve. What was seen in a slot that had begun before the dashboard was seen since then.
func (t *trend) draw(points []trends.Point, since time.Time, over span) {
	most, known := 1, 0
	var peak trends.Point
	for _, p := range points {
		if p.Known {
			known++
		}
		if p.Most > peak.Most {
			peak = p
			most = p.Most
		}
	}
	var line strings.Builder
	end := func() {
		if line.Len() > 0 {
			t.Lines = append(t.Lines, line.String())
			line.Reset()
		}
	}
	for i, p := range points {
		if !p.Known {
			end()
			continue
		}
		y := curveHeight - float64(p.Most)/float64(most)*(curveHeight-2) - 1
		fmt.Fprintf(&line, "%d,%.1f %d,%.1f ", i, y, i+1, y)
	}
	end()
	switch {
	case known == 0:
		t.Label = "Who waited " + string(over) + " is not known."
	case peak.Most == 0:
		t.Label = "Nobody waited " + string(over) + ", as far as is known."
	default:
		if peak.At.Before(since) && since.Before(peak.At.Add(trends.Slot)) {
			peak.At = since.UTC()
		}
		t.Label = fmt.Sprintf("At most %s waited %s, at %s UTC; now %s.", phrase.Thousands(peak.Most), over,
			peak.At.Format("15:04"), phrase.Thousands(points[len(points)-1].Most))
	}
}

func heldStrip(hours []trends.Hour, name string, over span) strip {
	return newStrip(hours, name, over, func(h trends.Hour) float64 { return h.Held })
}

func waitingStrip(hours []trends.Hour, name string, over span) strip {
	return newStrip(hours, name, over, func(h trends.Hour) float64 { return h.Waiting })
}

// newStrip is a row of a heat map, without its empty cells.
func newStrip(hours []trends.Hour, name string, over span, share func(trends.Hour) float64) strip {
	s := strip{Name: name}
	var sum, most float64
	var at time.Time
	for i, h := range hours {
		part := share(h)
		sum += part * float64(h.Length)
		if part > most {
			most = part
			at = h.From
		}
		if part > 0 {
			s.Cells = append(s.Cells, cell{i * hourWidth, fmt.Sprintf("h%d", min(4, 1+int(part*4)))})
		}
	}
	switch {
	case sum == 0:
		s.Label = fmt.Sprintf("%s: never %s", name, over)
	case over == wholeDay:
		s.Label = fmt.Sprintf("%s: %s of the last 24 hours, most in the one from %s UTC", name,
			percent(sum/float64(24*time.Hour)), at.Format("15:04"))
	default:
		s.Label = fmt.Sprintf("%s: most in the hour from %s UTC", name, at.Format("15:04"))
	}
	return s
}

// percent is a share for people: never 0 % of something, nor 100 % of what is not all.
func percent(part float64) string {
	switch n := int(part*100 + .5); {
	case n < 1:
		return "under 1 %"
	case n > 99 && part < .9999:
		return "99 %"
	default:
		return fmt.Sprintf("%d %%", n)
	}
}

// maxDays is how many owners have a heat map, those that need attention first.
const maxDays = 50

// fillDays adds the last day of the first owners: for how much of each hour they held a lock, and somebody waited for
// one of theirs.
func (p *Pages) fillDays(r *site.Request, owners []ownerView, groups []*locks.Group) {
	groups = groups[:min(len(groups), len(owners), maxDays)]
	held := make(map[string][]trends.Hold, len(groups))
	for _, g := range groups {
		held[g.Owner] = nil
		for _, row := range g.Rows {
			held[g.Owner] = append(held[g.Owner], trends.Hold{Begin: row.LockedAt})
		}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), etcdread.Hurry, etcdread.ErrSilent)
	defer cancel()
	parts := p.site.Parts
	if len(parts) == 0 {
		parts = []*site.Site{p.site}
	}
	for _, part := range parts {
		all, _ := part.History.Endings(ctx, r.Now, "")
		for i := range all {
			if holds, shown := held[all[i].Owner]; shown {
				held[all[i].Owner] = append(holds, holdOf(&all[i]))
			}
		}
	}
	over := spanOf(rememberedSince(parts), r.Now)
	for i, g := range groups {
		var points []trends.Point
		for _, part := range parts {
			points = trends.Either(points, part.Trends.Owner(g.Owner, r.Now))
		}
		hours := trends.Day(r.Now, held[g.Owner], points)
		owners[i].Day = []strip{heldStrip(hours, "Held a lock", over), waitingStrip(hours, "Waited for", over)}
	}
}

// rememberedSince is since when somebody has looked who waits, in any of the clusters.
func rememberedSince(parts []*site.Site) (since time.Time) {
	for _, part := range parts {
		since = locks.Earlier(since, part.Trends.Since())
	}
	return since
}
