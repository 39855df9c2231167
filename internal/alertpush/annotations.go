package alertpush

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/alerttext"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const runbooks = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#"

// holder is who an alert is about.
type holder struct {
	alerttext.Hold
	purpose string
	frame   string // where in the code the lock was taken; empty if unknown
}

// write returns the alert with its annotations.
func (p *Pusher) write(n need, frame string) alert {
	r := n.record
	h := holder{alerttext.HoldOf(r), r.Purpose, frame}
	a := alert{key: n.key, severity: n.severity, starts: n.starts}
	switch n.name {
	case lockAlerting:
		a.notes = p.notes(n.name, h, alerttext.Alerting(h.Hold, n.starts))
	case lockAbandoned:
		a.notes = p.notes(n.name, h, alerttext.Abandoned(h.Hold, r.Death, n.starts))
		_, how := protocol.WhatEnded(r.Death)
		set(a.notes, "ended", how)
		set(a.notes, "witness", alerttext.Line(r.Death.By))
		set(a.notes, "why", alerttext.Line(r.Death.How))
	case lockExpired:
		a.notes = p.notes(n.name, h, alerttext.Expired(h.Hold, n.starts))
	case clockOff:
		a.notes = p.notes(n.name, h, alerttext.ClockOff(h.Hold, n.off))
	case lockMalformed:
		a.notes = p.notes(n.name, h, alerttext.Malformed(h.Hold))
	}
	if q := r.Asked; q != nil {
		a.notes["asked"] = byWhom(q.By, q.At.Time, q.Reason)
	}
	if e := r.Extended; e != nil {
		a.notes["extended"] = byWhom(e.By, e.At.Time, e.Reason)
	}
	set(a.notes, "next", p.afterwards(n))
	if p.c.Waiters != nil {
		a.notes[waiters] = strconv.Itoa(p.c.Waiters(r.Queue()))
	}
	set(a.notes, "acknowledged", acknowledged(n.looked))
	return a
}

// waiters is the annotation with the number of those that wait for the lock.
const waiters = "waiters"

// afterwards is what happens if nobody does anything; empty if that is for the description to say.
func (p *Pusher) afterwards(n need) string {
	if n.name != lockAlerting && n.name != lockAbandoned && n.name != lockExpired {
		return ""
	}
	written := n.record.Written()
	switch at := alerttext.Instant(n.unlock); {
	case !p.c.Removes:
		return "No auto-unlock: the unlockers only alert."
	case p.c.Excluded(n.record.Name):
		return "No auto-unlock: the unlockers exclude this lock."
	case n.name == lockExpired:
		return "It stays until the cause is gone or an operator unlocks it."
	case n.unlock.IsZero():
		return "No auto-unlock: the record has no auto-unlock time."
	case n.name == lockAbandoned:
		return "Auto-unlock at " + at + " at the latest."
	case staleness.KeptAlive(n.record) && !written.IsZero():
		return "The holder extends it by itself: auto-unlock once it has not done so for " +
			alerttext.Lasting(n.unlock.Sub(written)) + "."
	case n.unlock.Sub(n.starts) < time.Second:
		return "Auto-unlock at " + at + ", unless the holder extends it."
	default:
		return "Auto-unlock at " + at + ", " + alerttext.Lasting(n.unlock.Sub(n.starts)) +
			" after this alert began, unless the holder extends it."
	}
}

// acknowledged is who looks at the lock, and until when. It changes nothing else about the alert.
func acknowledged(a *metadata.Acknowledgement) string {
	if a == nil {
		return ""
	}
	by := cmp.Or(alerttext.Line(a.By), "somebody") + " until " + alerttext.Instant(a.Until.Time)
	if a.Note == "" {
		return "by " + by
	}
	return "by " + by + ": " + alerttext.Line(a.Note)
}

// byWhom says who did something to the hold. It gives the time instead of an age, so that the alert stays the same.
func byWhom(who string, at time.Time, reason string) string {
	return "by " + cmp.Or(alerttext.Line(who), "somebody") + " at " + alerttext.Instant(at) + ": " +
		alerttext.Line(reason)
}

// removed returns the alert about a lock that an unlocker removed. Its end is known from the beginning.
func (p *Pusher) removed(e metadata.Ending) alert {
	h := holder{Hold: alerttext.Hold{Lock: e.Lock, Owner: e.Owner, Host: e.Hostname}, purpose: e.Purpose}
	a := alert{
		key: p.keyOf(lockAutoUnlocked, e.Lock, e.Owner, e.Attributes), severity: "warning",
		starts: e.EndedAt.Time, ends: e.EndedAt.Add(removedFor),
	}
	a.notes = p.notes(a.name, h, alerttext.Removed(h.Hold, e.EndedAt.Time))
	set(a.notes, "by", alerttext.Line(e.By))
	set(a.notes, "why", alerttext.Line(e.Why))
	return a
}

// notes returns the annotations of an alert. What is unknown is left out.
func (p *Pusher) notes(name string, h holder, says alerttext.Text) map[string]string {
	notes := map[string]string{"summary": says.Summary, "description": says.Description,
		"runbook_url": runbooks + strings.ToLower(name)}
	set(notes, "owner", alerttext.Line(h.Owner))
	set(notes, "host", alerttext.Line(h.Host))
	set(notes, "purpose", alerttext.Line(h.purpose))
	set(notes, "frame", alerttext.Line(h.frame))
	set(notes, "dashboard", p.link(h.Lock))
	return notes
}

func set(notes map[string]string, name, value string) {
	if value != "" {
		notes[name] = value
	}
}

// link returns the URL of a lock's page; empty if the dashboard's is not configured.
func (p *Pusher) link(lock string) string {
	if p.c.Dashboard == "" || len(lock) > 8*metadata.MaxNameBytes {
		return p.c.Dashboard
	}
	name, value := text.NameParameter(lock)
	return p.c.Dashboard + "lock?" + name + "=" + url.QueryEscape(value)
}

// firstFrame returns the first line of a backtrace.
func firstFrame(backtrace string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(backtrace, "\r\n"), "\n")
	return strings.TrimSpace(line)
}

// until returns how long it is until t, at most most.
func until(t, now time.Time, most time.Duration) time.Duration {
	if t.IsZero() {
		return most
	}
	return max(0, min(most, t.Sub(now)))
}
