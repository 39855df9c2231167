package alertpush

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/alerttext"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The names of the alerts, as in the rules of deploy/prometheus.
const (
	lockAlerting     = "UnlockerLockAlerting"
	lockAbandoned    = "UnlockerLockAbandoned"
	lockExpired      = "UnlockerLockExpired"
	lockAutoUnlocked = "UnlockerLockAutoUnlocked"
	lockMalformed    = "UnlockerLockMalformed"
	clockOff         = "UnlockerHolderClockOff"
	deadlocked       = "UnlockerDeadlock"
	lockUnclaimed    = "UnlockerLockUnclaimed"
)

// The delays and durations of the alerts, as in the rules.
const (
	expiredFor   = 5 * time.Minute  // after the deadline, before a lock that is still there is critical
	malformedFor = 15 * time.Minute // after it was first seen
	removedFor   = 15 * time.Minute // how long the alert about a removal lasts
	deadlockFor  = time.Minute      // after the processes began to wait for each other
)

// key identifies an alert: its name and the lock or, for a deadlock, all of its locks and holders. Owner and attributes
// are part of it because they are labels: an alert about the lock of another owner is another alert.
type key struct {
	name, lock, locks, holders string
	owner                      string
	attributes                 string // the labels from attributes of the record, as JSON; empty if there are none
}

// keyOf identifies an alert about a lock.
func (p *Pusher) keyOf(name, lock, owner string, attributes map[string]any) key {
	return key{name: name, lock: text.NameLabel(lock), owner: text.Label(owner), attributes: p.labels(attributes)}
}

// labels returns the labels that a record's attributes become.
func (p *Pusher) labels(attributes map[string]any) string {
	found := map[string]string{}
	for label, attribute := range p.c.Attributes {
		if value, ok := attributes[attribute]; ok {
			found[label] = text.Label(fmt.Sprint(value))
		}
	}
	if len(found) == 0 {
		return ""
	}
	encoded, _ := json.Marshal(found) // of text by text: it cannot fail, and sorts them
	return string(encoded)
}

type alert struct {
	key
	severity string
	starts   time.Time
	ends     time.Time // zero while active; in the future if its end is known in advance
	notes    map[string]string
}

// same reports whether Alertmanager need not receive b if it has a.
// The number of waiters changes all the time, and goes along when the alert is sent for another reason.
func (a alert) same(b alert) bool {
	if !a.starts.Equal(b.starts) || !a.ends.Equal(b.ends) || len(a.notes) != len(b.notes) {
		return false
	}
	for name, value := range a.notes {
		if name != waiters && b.notes[name] != value {
			return false
		}
	}
	return true
}

// need is an alert about a held lock, before its annotations are written.
type need struct {
	key
	severity string
	starts   time.Time
	record   *metadata.Record
	off      time.Duration             // how far the holder's clock is ahead
	unlock   time.Time                 // when the lock is due for removal; zero = never
	looked   *metadata.Acknowledgement // who looks at the lock now; nil = nobody
}

// judge calls emit for each alert that a lock needs. It returns when the lock may need another one if it does not
// change; zero is never.
func (p *Pusher) judge(r *metadata.Record, now staleness.Moment, emit func(need)) (next time.Time) {
	v := staleness.Judge(r, p.c.Policy, now)
	next = v.Next
	looked := r.AcknowledgedAt(now.Wall)
	if looked != nil {
		next = protocol.Earlier(next, looked.Until.Time)
	}
	about := func(name, severity string, starts time.Time) {
		emit(need{p.keyOf(name, r.Name, r.Owner, r.Attributes), severity, starts, r, v.ClockOff, v.AutoUnlockAt,
			looked})
	}
	if v.ClockOff != 0 { // since the change was observed, on a clock that is right
		about(clockOff, "warning", now.Wall.Add(r.Seen.Changed-now.Mono).Truncate(time.Minute))
	}
	switch seen := now.Mono - r.Seen.First; {
	case v.State == staleness.Malformed && seen < malformedFor:
		next = protocol.Earlier(next, now.Wall.Add(malformedFor-seen))
	case v.State == staleness.Malformed:
		about(lockMalformed, "warning", cmp.Or(r.LockedAt, now.Wall.Add(-seen).Truncate(time.Minute)))
	case v.State == staleness.Abandoned && now.Wall.Before(v.AlertAt):
		next = protocol.Earlier(next, v.AlertAt)
	case v.State != staleness.Held:
		about(lockAlerting, "warning", overdueSince(v, now.Wall))
	}
	if !v.AbandonedAt.IsZero() {
		about(lockAbandoned, "warning", cmp.Or(protocol.EndedAt(r.Death), v.AbandonedAt))
	}
	if v.State == staleness.Expired && p.c.Removes && !p.c.Excluded(r.Name) {
		if critical := v.AutoUnlockAt.Add(expiredFor); now.Wall.Before(critical) {
			next = protocol.Earlier(next, critical)
		} else {
			about(lockExpired, "critical", v.AutoUnlockAt)
		}
	}
	return next
}

// overdueSince returns when the alert began: as the record says, so that a restart does not change it.
func overdueSince(v staleness.Verdict, now time.Time) time.Time {
	if v.AlertAt.IsZero() || v.AlertAt.After(now) {
		return v.AutoUnlockAt
	}
	return v.AlertAt
}

const (
	maxCycles = 20 // deadlocks that are pushed, the oldest ones
	maxWaits  = 10 // waits described of each
)

// deadlocks returns the cycles that are pushed, or will be soon.
func (p *Pusher) deadlocks() []deadlock.Cycle {
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
			p.next = protocol.Earlier(p.next, due)
			continue
		}
		if a := p.deadlockAlert(c); p.alerts.set(a, "") {
			news = append(news, a)
		}
	}
	return news
}

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
	waits, more := c.Say(maxWaits, alerttext.Line)
	said := strings.Join(waits, ". ") + "."
	if more > 0 {
		said += fmt.Sprintf(" There are %d more in the cycle.", more)
	}
	return said
}

// maxUnclaimed is how many alerts about locks that nobody takes are pushed, the longest first.
const maxUnclaimed = 100

// unclaimed returns the locks that nobody takes, and when there may be another one.
func (p *Pusher) unclaimed() ([]unclaimed.Lock, time.Duration) {
	all, next := p.c.Unclaimed()
	return all[:min(len(all), maxUnclaimed)], next
}

// sameUnclaimed reports whether two updates found the same locks.
func sameUnclaimed(a, b []unclaimed.Lock) bool {
	return slices.EqualFunc(a, b, func(a, b unclaimed.Lock) bool {
		return a.Name == b.Name && a.Since.Equal(b.Since) && a.First.ID == b.First.ID
	})
}

// updateUnclaimed stores the locks that nobody takes in the alert set, and returns what is new.
func (p *Pusher) updateUnclaimed(found []unclaimed.Lock) (news []alert) {
	entered := map[key]bool{}
	for _, l := range found {
		a := p.unclaimedAlert(l)
		if entered[a.key] { // two names look alike: the one that has been free for longer wins
			continue
		}
		entered[a.key] = true
		if p.alerts.set(a, "") {
			news = append(news, a)
		}
	}
	return news
}

// unclaimedAlert returns the alert about an unclaimed lock. It omits the number of waiters, which keeps changing.
func (p *Pusher) unclaimedAlert(l unclaimed.Lock) alert {
	first := holder{Hold: alerttext.Hold{Lock: l.Name, Owner: l.First.Owner, Host: l.First.Hostname},
		purpose: l.First.Purpose}
	a := alert{key: p.keyOf(lockUnclaimed, l.Name, l.First.Owner, nil), severity: "warning", starts: l.Since}
	a.notes = p.notes(a.name, first, alerttext.Unclaimed(first.Hold, l.Since))
	return a
}
