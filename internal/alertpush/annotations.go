package alertpush

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const runbooks = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#"

// maxTextBytes is the length at which texts of a record are cut.
const maxTextBytes = 512

// holder is who an alert is about.
type holder struct {
	lock, owner, host, purpose string
	frame                      string // where in the code the lock was taken; empty if unknown
}

func holderOf(r *metadata.Record, frame string) holder {
	return holder{r.Name, r.Owner, r.Hostname, r.Purpose, frame}
}

func (h holder) who() string {
	who := cmp.Or(oneLine(h.owner), "somebody")
	if h.host != "" {
		who += " on " + oneLine(h.host)
	}
	return who
}

// atStart is who at the start of a sentence.
func (h holder) atStart() string {
	if h.owner == "" {
		return "S" + h.who()[1:]
	}
	return h.who()
}

// write returns the alert with its annotations.
func (p *Pusher) write(n need, frame string) alert {
	h := holderOf(n.record, frame)
	at := instant(n.starts)
	a := alert{key: n.key, severity: n.severity, starts: n.starts}
	switch n.name {
	case lockAlerting:
		a.notes = p.notes(n.name, h, fmt.Sprintf("Lock %s is held longer than its holder expected.", oneLine(h.lock)),
			fmt.Sprintf("%s took the lock %s and expected to be done by %s.", h.atStart(), oneLine(h.lock), at))
	case lockAbandoned:
		what, how := protocol.WhatEnded(n.record.Death)
		a.notes = p.notes(n.name, h, fmt.Sprintf("The holder of lock %s is dead.", oneLine(h.lock)),
			fmt.Sprintf("%s took the lock %s and did not release it: %s at %s. "+
				"Everything waiting for the lock keeps waiting until it is unlocked.",
				h.atStart(), oneLine(h.lock), what, at))
		set(a.notes, "ended", how)
		set(a.notes, "witness", oneLine(n.record.Death.By))
		set(a.notes, "why", oneLine(n.record.Death.How))
	case lockExpired:
		a.notes = p.notes(n.name, h, fmt.Sprintf("Lock %s is past its deadline and has not been removed.",
			oneLine(h.lock)),
			fmt.Sprintf("The lock %s of %s was due for removal at %s. Something keeps the unlockers "+
				"from removing it, and its waiters keep waiting.", oneLine(h.lock), h.who(), at))
	case clockOff:
		side := "ahead of"
		if n.off < 0 {
			side = "behind"
		}
		a.notes = p.notes(n.name, h, fmt.Sprintf("The clock of the holder of lock %s is off.", oneLine(h.lock)),
			fmt.Sprintf("The clock of %s, the holder of the lock %s, is %v %s the unlocker's. "+
				"The times that the holder wrote into the record are wrong by as much.",
				h.who(), oneLine(h.lock), lasting(n.off.Abs()), side))
	case lockMalformed:
		a.notes = p.notes(n.name, h, fmt.Sprintf("Lock %s has no uuid or no readable deadline.", oneLine(h.lock)),
			fmt.Sprintf("The lock %s belongs to %s. You get no alert when it is overdue, and it is not removed, "+
				"unless the unlockers have defaults for such locks.", oneLine(h.lock), h.who()))
	}
	set(a.notes, "asked", asked(n.record))
	set(a.notes, "extended", extended(n.record))
	set(a.notes, "next", p.afterwards(n))
	if p.c.Waiters != nil {
		a.notes[waiters] = strconv.Itoa(p.c.Waiters(n.record.Queue()))
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
	switch at := instant(n.unlock); {
	case !p.c.Removes:
		return "No auto-unlock: the unlockers only alert."
	case p.c.Excluded != nil && p.c.Excluded(n.record.Name):
		return "No auto-unlock: the unlockers exclude this lock."
	case n.name == lockExpired:
		return "It stays until the cause is gone or somebody unlocks it."
	case n.unlock.IsZero():
		return "No auto-unlock: the record has no time for it."
	case n.name == lockAbandoned:
		return "Auto-unlock at " + at + " at the latest."
	case n.unlock.Sub(n.starts) < time.Second:
		return "Auto-unlock at " + at + ", unless the holder extends it."
	default:
		return "Auto-unlock at " + at + ", " + lasting(n.unlock.Sub(n.starts)) +
			" after this alert began, unless the holder extends it."
	}
}

// instant writes a time as the rules do.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// lasting writes a duration as the rules do, which have it from Prometheus' humanizeDuration.
func lasting(d time.Duration) string {
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

// acknowledged is who looks at the lock, and until when. It changes nothing else about the alert.
func acknowledged(a *metadata.Acknowledgement) string {
	if a == nil {
		return ""
	}
	by := cmp.Or(oneLine(a.By), "somebody") + " until " + instant(a.Until.Time)
	if a.Note == "" {
		return "by " + by
	}
	return "by " + by + ": " + oneLine(a.Note)
}

// asked is who asked the holder to finish. It has the time and not an age, so that the alert stays the same.
func asked(r *metadata.Record) string {
	if r.Asked == nil {
		return ""
	}
	return byWhom(r.Asked.By, r.Asked.At.Time, r.Asked.Reason)
}

// extended is who gave the holder more time.
func extended(r *metadata.Record) string {
	if r.Extended == nil {
		return ""
	}
	return byWhom(r.Extended.By, r.Extended.At.Time, r.Extended.Reason)
}

func byWhom(who string, at time.Time, reason string) string {
	return "by " + cmp.Or(oneLine(who), "somebody") + " at " + instant(at) + ": " +
		oneLine(reason)
}

// removed returns the alert about a lock that an unlocker removed. Its end is known from the beginning.
func (p *Pusher) removed(e metadata.Ending) alert {
	h := holder{lock: e.Lock, owner: e.Owner, host: e.Hostname, purpose: e.Purpose}
	a := alert{
		key: p.keyOf(lockAutoUnlocked, e.Lock, e.Owner, e.Attributes), severity: "warning",
		starts: e.EndedAt.Time, ends: e.EndedAt.Add(removedFor),
	}
	a.notes = p.notes(a.name, h, fmt.Sprintf("Lock %s was removed by the unlocker.", oneLine(e.Lock)),
		fmt.Sprintf("%s did not release the lock %s, so an unlocker removed it at %s. "+
			"Check the holder and its work: somebody else may hold the lock now.", h.atStart(), oneLine(e.Lock),
			instant(e.EndedAt.Time)))
	set(a.notes, "by", oneLine(e.By))
	set(a.notes, "why", oneLine(e.Why))
	return a
}

// notes returns the annotations of an alert. What is unknown is left out.
func (p *Pusher) notes(name string, h holder, summary, description string) map[string]string {
	notes := map[string]string{"summary": summary, "description": description,
		"runbook_url": runbooks + strings.ToLower(name)}
	set(notes, "owner", oneLine(h.owner))
	set(notes, "host", oneLine(h.host))
	set(notes, "purpose", oneLine(h.purpose))
	set(notes, "frame", oneLine(h.frame))
	set(notes, "dashboard", p.link(h.lock))
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

// oneLine makes one visible line of text from outside.
func oneLine(s string) string {
	return text.Clip(text.Visible(text.Clip(s, maxTextBytes)), maxTextBytes) // escapes are longer than what they show
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
