package alertpush

import (
	"cmp"
	"maps"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The alerts, by the names that the rules of deploy/prometheus give them.
const (
	lockAlerting     = "UnlockerLockAlerting"
	lockExpired      = "UnlockerLockExpired"
	lockAutoUnlocked = "UnlockerLockAutoUnlocked"
	lockMalformed    = "UnlockerLockMalformed"
	clockOff         = "UnlockerHolderClockOff"
	deadlocked       = "UnlockerDeadlock"
)

// The slack of the alerts, as in the rules.
const (
	expiredFor   = 5 * time.Minute  // past the deadline before it is critical that the lock is still there
	malformedFor = 15 * time.Minute // since it was first seen
	removedFor   = 15 * time.Minute // that the removal of a lock is told
	deadlockFor  = time.Minute      // that processes wait for each other
)

// key is what tells alerts apart: the lock or, of processes that wait for each other, all the locks and who holds them.
type key struct{ name, lock, locks, holders string }

// alert is one alert as it is now.
type alert struct {
	key
	severity string
	starts   time.Time
	ends     time.Time // zero while it goes on; in the future for one whose end is known
	notes    map[string]string
}

// same tells whether Alertmanager need not hear of b when it knows of a.
func (a alert) same(b alert) bool {
	return a.starts.Equal(b.starts) && a.ends.Equal(b.ends) && maps.Equal(a.notes, b.notes)
}

// need is an alert about a lock that is held, before anything is written about it.
type need struct {
	key
	severity string
	starts   time.Time
	record   *metadata.Record
	off      time.Duration // how far the holder's clock is ahead
}

// judge calls tell for each alert that a lock needs, and returns when it may need another one if nobody touches it;
// zero is never.
func (p *Pusher) judge(r *metadata.Record, now staleness.Moment, tell func(need)) (next time.Time) {
	v := staleness.Judge(r, p.c.Policy, now)
	next = v.Next
	about := func(name, severity string, starts time.Time) {
		tell(need{key{name: name, lock: text.NameLabel(r.Name)}, severity, starts, r, v.ClockOff})
	}
	if v.ClockOff != 0 { // since it was seen, on a clock that is right
		about(clockOff, "warning", now.Wall.Add(r.Seen.Changed-now.Mono).Truncate(time.Minute))
	}
	switch seen := now.Mono - r.Seen.First; {
	case v.State == staleness.Malformed && seen < malformedFor:
		next = earlier(next, now.Wall.Add(malformedFor-seen))
	case v.State == staleness.Malformed:
		about(lockMalformed, "warning", cmp.Or(r.LockedAt, now.Wall.Add(-seen).Truncate(time.Minute)))
	case v.State != staleness.Held:
		about(lockAlerting, "warning", overdueSince(v, now.Wall))
	}
	if v.State == staleness.Expired && p.c.Removes {
		if critical := v.AutoUnlockAt.Add(expiredFor); now.Wall.Before(critical) {
			next = earlier(next, critical)
		} else {
			about(lockExpired, "critical", v.AutoUnlockAt)
		}
	}
	return next
}

// overdueSince is since when people are to be alerted: what the record says, so that a restart does not change it.
func overdueSince(v staleness.Verdict, now time.Time) time.Time {
	if v.AlertAt.IsZero() || v.AlertAt.After(now) {
		return v.AutoUnlockAt
	}
	return v.AlertAt
}

// earlier is the earlier of two times, where zero stands for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
