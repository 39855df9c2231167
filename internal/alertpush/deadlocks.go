package alertpush

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/deadlock"
)

// maxCycles is how many cycles of processes are told at once, the oldest ones; mostSteps how many waits of each.
const maxCycles, mostSteps = 20, 10

// cycles are those that are told of, or will be soon.
func (p *Pusher) cycles() []deadlock.Cycle {
	if p.c.Deadlocks == nil {
		return nil
	}
	all := p.c.Deadlocks()
	return all[:min(len(all), maxCycles)]
}

// alike tells whether two looks have found the same.
func alike(a, b []deadlock.Cycle) bool {
	return slices.EqualFunc(a, b, func(a, b deadlock.Cycle) bool {
		return a.Since.Equal(b.Since) && slices.EqualFunc(a.Waits, b.Waits,
			func(a, b deadlock.Wait) bool { return a.Who == b.Who && a.Lock == b.Lock })
	})
}

// enterCycles notes in the book which cycles have been there for long enough, and returns what is new in it.
func (p *Pusher) enterCycles(cycles []deadlock.Cycle, now time.Time) (news []alert) {
	for _, c := range cycles {
		if c.Since.IsZero() {
			continue // nobody says for how long
		}
		if due := c.Since.Add(deadlockFor); now.Before(due) {
			p.next = earlier(p.next, due)
			continue
		}
		a := p.stuckAlert(c)
		if before := p.book[a.key]; before == nil || !before.same(a) {
			news = append(news, a)
		}
		p.book.enter(a, "")
	}
	return news
}

// stuckAlert is the alert about processes that wait for each other.
func (p *Pusher) stuckAlert(c deadlock.Cycle) alert {
	locks, holders := c.Labels()
	a := alert{key: key{name: deadlocked, locks: locks, holders: holders}, severity: "warning", starts: c.Since}
	a.notes = map[string]string{
		"summary": "Processes wait for each other's locks: " + text(locks) + ".",
		"description": told(c) + " Unless they do several things at once, nothing moves until one of them gives up " +
			"or loses a lock at its deadline.",
		"runbook_url": runbooks + strings.ToLower(deadlocked),
	}
	if p.c.Dashboard != "" {
		a.notes["dashboard"] = p.c.Dashboard + "waiting"
	}
	return a
}

// told says who waits for what, a sentence for each.
func told(c deadlock.Cycle) string {
	var sentences []string
	for _, w := range c.Waits[:min(len(c.Waits), mostSteps)] {
		held := text(w.Held[0].String())
		if others := len(w.Held) - 1; others > 0 {
			held += fmt.Sprintf(" and %d more", others)
		}
		sentences = append(sentences, fmt.Sprintf("%s waits for %s, held by %s.", text(w.Who.String()), text(w.Lock),
			held))
	}
	if more := len(c.Waits) - len(sentences); more > 0 {
		sentences = append(sentences, fmt.Sprintf("There are %d more in the cycle.", more))
	}
	return strings.Join(sentences, " ")
}
