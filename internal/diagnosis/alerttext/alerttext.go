// Package alerttext has the sentences of alerts about locks. Pushed alerts, the JSON of a lock and the page's
// notifications use them, and tests keep Prometheus' rules in deploy/prometheus identical.
//
// Names are untrusted text from etcd: here they become one visible line of at most 512 bytes.
package alerttext

import (
	"cmp"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Text is what an alert says.
type Text struct {
	Summary     string // one sentence
	Description string // one or a few more, with who and when
}

// Hold is whose lock an alert is about. Owner and host may be empty.
type Hold struct{ Lock, Owner, Host string }

// HoldOf is the hold of a record.
func HoldOf(r *metadata.Record) Hold { return Hold{r.Name, r.Owner, r.Hostname} }

// who holds the lock, in the middle of a sentence.
func (h Hold) who() string {
	who := cmp.Or(Line(h.Owner), "somebody")
	if h.Host != "" {
		who += " on " + Line(h.Host)
	}
	return who
}

// atStart is who at the start of a sentence.
func (h Hold) atStart() string {
	if h.Owner == "" {
		return "S" + h.who()[1:]
	}
	return h.who()
}

// Of describes the state of a lock: in the words of its worst alert, firing yet or not; without one, that it is held.
func Of(r *metadata.Record, v staleness.Verdict) Text {
	h := HoldOf(r)
	switch {
	case !v.AbandonedAt.IsZero():
		return Abandoned(h, r.Death, EndedAt(r, v))
	case v.State == staleness.Expired:
		return Expired(h, v.AutoUnlockAt)
	case v.State == staleness.Malformed:
		return Malformed(h)
	case v.State != staleness.Held:
		return Alerting(h, cmp.Or(v.AlertAt, v.AutoUnlockAt))
	case v.ClockOff != 0:
		return ClockOff(h, v.ClockOff)
	}
	return Held(h, v.AlertAt)
}

// EndedAt is when the holder of an abandoned lock ended, as far as its witness knows.
func EndedAt(r *metadata.Record, v staleness.Verdict) time.Time {
	return cmp.Or(protocol.EndedAt(r.Death), v.AbandonedAt)
}

// Held is about a healthy lock, for which there is no alert.
func Held(h Hold, expected time.Time) Text {
	lock := Line(h.Lock)
	t := Text{fmt.Sprintf("Lock %s is held.", lock), fmt.Sprintf("%s took the lock %s.", h.atStart(), lock)}
	if !expected.IsZero() {
		t.Description = fmt.Sprintf("%s took the lock %s and expects to be done by %s.", h.atStart(), lock,
			Instant(expected))
	}
	return t
}

// Alerting is about a lock past its first deadline.
func Alerting(h Hold, expected time.Time) Text {
	lock := Line(h.Lock)
	return Text{fmt.Sprintf("Lock %s is held longer than its holder expected.", lock),
		fmt.Sprintf("%s took the lock %s and expected to be done by %s.", h.atStart(), lock, Instant(expected))}
}

// Abandoned is about a lock whose holder is proven to have ended.
func Abandoned(h Hold, death *metadata.Statement, at time.Time) Text {
	lock := Line(h.Lock)
	what, _ := protocol.WhatEnded(death)
	return Text{fmt.Sprintf("The holder of lock %s is dead.", lock),
		fmt.Sprintf("%s took the lock %s and did not release it: %s at %s. "+
			"Everything waiting for the lock keeps waiting until it is unlocked.", h.atStart(), lock, what,
			Instant(at))}
}

// Expired is about a lock past its second deadline that is still there.
func Expired(h Hold, due time.Time) Text {
	lock := Line(h.Lock)
	return Text{fmt.Sprintf("Lock %s is past its deadline and has not been removed.", lock),
		fmt.Sprintf("The lock %s of %s was due for removal at %s. Something keeps the unlockers "+
			"from removing it, and its waiters keep waiting.", lock, h.who(), Instant(due))}
}

// Removed is about a lock that an unlocker removed.
func Removed(h Hold, at time.Time) Text {
	lock := Line(h.Lock)
	return Text{fmt.Sprintf("Lock %s was auto-unlocked.", lock),
		fmt.Sprintf("%s did not release the lock %s, so an unlocker removed it at %s. "+
			"Check the holder and its work: another process may hold the lock now.", h.atStart(), lock, Instant(at))}
}

// ClockOff is about a lock whose holder's clock is ahead by so much, or behind if that is negative.
func ClockOff(h Hold, ahead time.Duration) Text {
	lock := Line(h.Lock)
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	return Text{fmt.Sprintf("The clock of the holder of lock %s is off.", lock),
		fmt.Sprintf("The clock of %s, the holder of the lock %s, is %s %s the unlocker's. "+
			"The times that the holder wrote into the record are wrong by that much.", h.who(), lock,
			Lasting(ahead.Abs()), side)}
}

// Malformed is about a lock whose record has no uuid or no readable deadline. The rules have no series for each of
// these: they count them, and say the same about all.
func Malformed(h Hold) Text {
	lock := Line(h.Lock)
	return Text{fmt.Sprintf("Lock %s has no uuid or no readable deadline.", lock),
		fmt.Sprintf("The lock %s belongs to %s. You get no alert when it is overdue, and it is not removed, unless "+
			"the unlockers have defaults for such locks.", lock, h.who())}
}

// Unclaimed is about a free lock whose first waiter does not take it. Owner and host are those of that waiter.
func Unclaimed(first Hold, since time.Time) Text {
	lock := Line(first.Lock)
	who := "the first in line"
	if first.Owner != "" || first.Host != "" {
		who = first.who() + ", who is first in line,"
	}
	return Text{fmt.Sprintf("Lock %s is free, but the first in line does not take it.", lock),
		fmt.Sprintf("The lock %s has been free since %s, and %s does not take it. "+
			"All other waiters are stuck behind it.", lock, Instant(since), who)}
}

// Deadlock is about processes that wait for each other.
func Deadlock(locks, holders string, since time.Time) Text {
	return Text{"Processes are waiting for each other's locks: " + Line(locks) + ".",
		Line(holders) + " have been waiting for each other's locks since " + Instant(since) +
			". Unless they do several jobs at once, they are stuck until one gives up or loses a lock at its " +
			"deadline."}
}

// maxLineBytes is the length at which texts of a record are cut.
const maxLineBytes = 512

// Line makes one visible line of text from outside.
func Line(s string) string {
	return text.Clip(text.Visible(text.Clip(s, maxLineBytes)), maxLineBytes) // escapes are longer than what they show
}

// Instant writes a time as the rules do.
func Instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Lasting writes a duration as the rules do, which have it from Prometheus' humanizeDuration.
func Lasting(d time.Duration) string {
	n := int64(d.Round(time.Second) / time.Second)
	minutes, seconds := n/60%60, n%60
	days, hours := n/86400, n/3600%24
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh %dm %ds", days, hours, minutes, seconds)
	case hours > 0:
		return fmt.Sprintf("%dh %dm %ds", hours, minutes, seconds)
	case minutes > 0:
		return fmt.Sprintf("%dm %ds", minutes, seconds)
	}
	return fmt.Sprintf("%ds", seconds)
}
