package alertpush

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

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

// alert is the current state of one alert.
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
		next = earlier(next, looked.Until.Time)
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
		next = earlier(next, now.Wall.Add(malformedFor-seen))
	case v.State == staleness.Malformed:
		about(lockMalformed, "warning", cmp.Or(r.LockedAt, now.Wall.Add(-seen).Truncate(time.Minute)))
	case v.State == staleness.Abandoned && now.Wall.Before(v.AlertAt):
		next = earlier(next, v.AlertAt)
	case v.State != staleness.Held:
		about(lockAlerting, "warning", overdueSince(v, now.Wall))
	}
	if !v.AbandonedAt.IsZero() {
		about(lockAbandoned, "warning", cmp.Or(protocol.EndedAt(r.Death), v.AbandonedAt))
	}
	if v.State == staleness.Expired && p.c.Removes && !p.excluded(r.Name) {
		if critical := v.AutoUnlockAt.Add(expiredFor); now.Wall.Before(critical) {
			next = earlier(next, critical)
		} else {
			about(lockExpired, "critical", v.AutoUnlockAt)
		}
	}
	return next
}

// excluded reports whether somebody wants the lock to stay.
func (p *Pusher) excluded(lock string) bool { return p.c.Excluded != nil && p.c.Excluded(lock) }

// overdueSince returns when the alert began: as the record says, so that a restart does not change it.
func overdueSince(v staleness.Verdict, now time.Time) time.Time {
	if v.AlertAt.IsZero() || v.AlertAt.After(now) {
		return v.AutoUnlockAt
	}
	return v.AlertAt
}

// earlier returns the earlier of two times, where zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
