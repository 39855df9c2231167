package lockjson

import (
	"cmp"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// summarize describes a lock in one sentence, and in a few: in the words of its worst alert, firing yet or not. A test
// compares them with Prometheus' rules in deploy/prometheus.
func summarize(r *metadata.Record, v staleness.Verdict) (summary, description string) {
	lock := oneLine(r.Name)
	switch {
	case !v.AbandonedAt.IsZero():
		return "The holder of lock " + lock + " is dead.", describeAbandoned(r, v)
	case v.State == staleness.Expired:
		return "Lock " + lock + " is past its deadline and has not been removed.",
			fmt.Sprintf("The lock %s of %s was due for removal at %s. Something keeps the unlockers from removing it, "+
				"and its waiters keep waiting.", lock, holderText(r), utc(v.AutoUnlockAt))
	case v.State == staleness.Malformed:
		return "Lock " + lock + " has no uuid or no readable deadline.",
			fmt.Sprintf("The lock %s belongs to %s. You get no alert when it is overdue, and it is not removed, unless "+
				"the unlockers have defaults for such locks.", lock, holderText(r))
	case v.State != staleness.Held:
		return "Lock " + lock + " is held longer than its holder expected.",
			fmt.Sprintf("%s took the lock %s and expected to be done by %s.", holderFirst(r), lock,
				utc(cmp.Or(v.AlertAt, v.AutoUnlockAt)))
	case v.ClockOff != 0:
		return "The clock of the holder of lock " + lock + " is off.", describeClock(r, v.ClockOff)
	case v.AlertAt.IsZero():
		return "Lock " + lock + " is held.", fmt.Sprintf("%s took the lock %s.", holderFirst(r), lock)
	}
	return "Lock " + lock + " is held.", fmt.Sprintf("%s took the lock %s and expects to be done by %s.",
		holderFirst(r), lock, utc(v.AlertAt))
}

// describeAbandoned is about a lock whose holder is proven to have ended.
func describeAbandoned(r *metadata.Record, v staleness.Verdict) string {
	what, _ := protocol.WhatEnded(r.Death)
	at := cmp.Or(protocol.EndedAt(r.Death), v.AbandonedAt)
	return fmt.Sprintf("%s took the lock %s and did not release it: %s at %s. Everything waiting for the lock keeps "+
		"waiting until it is unlocked.", holderFirst(r), oneLine(r.Name), what, utc(at))
}

// describeClock is about a holder whose clock is ahead by so much, or behind if that is negative.
func describeClock(r *metadata.Record, ahead time.Duration) string {
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	return fmt.Sprintf("The clock of %s, the holder of the lock %s, is %s %s the unlocker's. The times that the holder "+
		"wrote into the record are wrong by that much.", holderText(r), oneLine(r.Name), humanDuration(ahead.Abs()), side)
}

// holderText names who holds the lock, for the middle of a sentence.
func holderText(r *metadata.Record) string {
	who := cmp.Or(oneLine(r.Owner), "somebody")
	if r.Hostname != "" {
		who += " on " + oneLine(r.Hostname)
	}
	return who
}

// holderFirst is the same for the start of a sentence. The name of an owner stays as it is.
func holderFirst(r *metadata.Record) string {
	if r.Owner == "" {
		return "S" + holderText(r)[1:]
	}
	return holderText(r)
}

// maxLineBytes is the length at which texts of a record are cut.
const maxLineBytes = 512

// oneLine makes one visible line of untrusted text.
func oneLine(s string) string {
	return text.Clip(text.Visible(text.Clip(s, maxLineBytes)), maxLineBytes) // escapes are longer than what they show
}

// utc writes a time as the rules do.
func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// humanDuration writes a duration as the rules do, which have it from Prometheus' humanizeDuration.
func humanDuration(d time.Duration) string {
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
