package alertpush

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

// write returns the alert with its annotations.
func (p *Pusher) write(n need, frame string) alert {
	h := holderOf(n.record, frame)
	at := n.starts.UTC().Format("2006-01-02 15:04:05Z")
	a := alert{key: n.key, severity: n.severity, starts: n.starts}
	switch n.name {
	case lockAlerting:
		a.notes = p.notes(n.name, h, fmt.Sprintf("Lock %s is held longer than its holder expected.", oneLine(h.lock)),
			fmt.Sprintf("%s took the lock %s and expected to be done by %s.", h.who(), oneLine(h.lock), at))
	case lockAbandoned:
		what, how := protocol.WhatEnded(n.record.Death)
		if how != "" {
			what += " " + how
		}
		a.notes = p.notes(n.name, h, fmt.Sprintf("The holder of lock %s is dead.", oneLine(h.lock)),
			fmt.Sprintf("%s took the lock %s and did not give it back: %s at %s, says the witness %s. "+
				"Everything waiting for the lock keeps waiting until it is unlocked.", h.who(), oneLine(h.lock), what, at,
				oneLine(n.record.Death.By)))
		set(a.notes, "why", oneLine(n.record.Death.How))
	case lockExpired:
		a.notes = p.notes(n.name, h, fmt.Sprintf("Lock %s is past its deadline and has not been removed.",
			oneLine(h.lock)),
			fmt.Sprintf("The lock %s of %s was due for removal at %s. Something stops the unlockers, "+
				"and everything waiting for the lock keeps waiting.", oneLine(h.lock), h.who(), at))
	case clockOff:
		side := "ahead of"
		if n.off < 0 {
			side = "behind"
		}
		a.notes = p.notes(n.name, h, fmt.Sprintf("The clock of the holder of lock %s is off.", oneLine(h.lock)),
			fmt.Sprintf("The clock of %s, the holder of the lock %s, is %v %s the unlocker's. "+
				"The times that the holder wrote into the record are wrong by as much.",
				h.who(), oneLine(h.lock), n.off.Abs().Round(time.Second), side))
	case lockMalformed:
		a.notes = p.notes(n.name, h, fmt.Sprintf("Lock %s has no uuid or no readable deadline.", oneLine(h.lock)),
			fmt.Sprintf("The lock %s belongs to %s. You get no alert when it is overdue, and it is not removed, "+
				"unless the unlockers have defaults for such locks.", oneLine(h.lock), h.who()))
	}
	return a
}

// removed returns the alert about a lock that an unlocker removed. Its end is known from the beginning.
func (p *Pusher) removed(e metadata.Ending) alert {
	h := holder{lock: e.Lock, owner: e.Owner, host: e.Hostname, purpose: e.Purpose}
	a := alert{
		key: key{name: lockAutoUnlocked, lock: text.NameLabel(e.Lock)}, severity: "warning",
		starts: e.EndedAt.Time, ends: e.EndedAt.Add(removedFor),
	}
	a.notes = p.notes(a.name, h, fmt.Sprintf("Lock %s was removed by the unlocker.", oneLine(e.Lock)),
		fmt.Sprintf("%s did not give back the lock %s, so it was removed. Find out what became of the holder "+
			"and its work: somebody else may hold the lock now.", h.who(), oneLine(e.Lock)))
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
	if !utf8.ValidString(lock) {
		return p.c.Dashboard + "lock?name_b64=" + base64.RawURLEncoding.EncodeToString([]byte(lock))
	}
	return p.c.Dashboard + "lock?name=" + url.QueryEscape(lock)
}

// oneLine makes one visible line of text from outside.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(s[:min(len(s), 4*maxTextBytes)], string(utf8.RuneError)))
	if len(s) <= maxTextBytes {
		return s
	}
	end := maxTextBytes
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
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
