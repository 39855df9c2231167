package alertpush

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/alerttext"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
)

const (
	maxCycles = 20 // deadlocks that are pushed, the oldest ones
	maxWaits  = 10 // waits described of each
)

// deadlocks returns the cycles that are pushed, or will be soon.
func (p *Pusher) deadlocks() []deadlock.Cycle {
	if p.c.Deadlocks == nil {
		return nil
	}
	all := p.c.Deadlocks()
	return all[:min(len(all), maxCycles)]
}

// alike reports whether two updates found the same cycles.
func alike(a, b []deadlock.Cycle) bool {
	return slices.EqualFunc(a, b, func(a, b deadlock.Cycle) bool {
		return a.Since.Equal(b.Since) && slices.EqualFunc(a.Waits, b.Waits,
			func(a, b deadlock.Wait) bool { return a.Who == b.Who && a.Lock == b.Lock })
	})
}

// updateDeadlocks stores the cycles that have lasted long enough in the alert set, and returns what is new.
func (p *Pusher) updateDeadlocks(cycles []deadlock.Cycle, now time.Time) (news []alert) {
	for _, c := range cycles {
		if c.Since.IsZero() {
			continue // its age is unknown
		}
		if due := c.Since.Add(deadlockFor); now.Before(due) {
			p.next = earlier(p.next, due)
			continue
		}
		a := p.deadlockAlert(c)
		if before := p.alerts[a.key]; before == nil || !before.same(a) {
			news = append(news, a)
		}
		p.alerts.set(a, "")
	}
	return news
}

// deadlockAlert returns the alert about a deadlock.
func (p *Pusher) deadlockAlert(c deadlock.Cycle) alert {
	locks, holders := c.Labels()
	a := alert{key: key{name: deadlocked, locks: locks, holders: holders}, severity: "warning", starts: c.Since}
	says := alerttext.Deadlock(locks, holders, c.Since)
	a.notes = map[string]string{
		"summary":     says.Summary,
		"description": says.Description,
		"waits":       describe(c),
		"runbook_url": runbooks + strings.ToLower(deadlocked),
	}
	if p.c.Dashboard != "" {
		a.notes["dashboard"] = p.c.Dashboard + "waiting"
	}
	return a
}

// describe returns a sentence for each wait of the cycle.
func describe(c deadlock.Cycle) string {
	var sentences []string
	for _, w := range c.Waits[:min(len(c.Waits), maxWaits)] {
		held := alerttext.Line(w.Held[0].String())
		if others := len(w.Held) - 1; others > 0 {
			held += fmt.Sprintf(" and %d more", others)
		}
		sentences = append(sentences, fmt.Sprintf("%s waits for %s, held by %s.", alerttext.Line(w.Who.String()),
			alerttext.Line(w.Lock),
			held))
	}
	if more := len(c.Waits) - len(sentences); more > 0 {
		sentences = append(sentences, fmt.Sprintf("There are %d more in the cycle.", more))
	}
	return strings.Join(sentences, " ")
}
