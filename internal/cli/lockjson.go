package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// lockShape documents lockJSON for the help texts.
const lockShape = `JSON: one object per line. Members are added over time and never change their meaning; what is not known is null.

  name                      the lock's name; bytes that are not UTF-8 are replaced, then name_base64 has them exactly
  state                     held, alerting, expired or malformed
  uuid, token, revision     the hold's identity, its fencing token, the highest revision of its keys
  owner, hostname, pid, purpose
  locked_at, alert_at, auto_unlock_at, alive_at   RFC 3339, UTC, as written by the holder
  held_seconds, alert_in_seconds, auto_unlock_in_seconds   by the clock here; negative when passed
  progress                  the note of the last sign of life
  attributes                an object of text, numbers and booleans
  problems                  a list of {field, reason, text}; empty for a sound record
  waiters                   how many wait for the lock; of a share, for the lock that is shared
  kind                      semaphore, shared or exclusive for a lock that several can hold, null for an ordinary one
  share_of                  the lock of which this is a share: "pool" for "pool#2"; null for a whole lock
  permits, limit            of a semaphore: how many this holder has, of how many for all
  clock_ahead_seconds       at least so far the holder's clock is ahead of the one here; null when nothing shows that`

// lockJSON is one lock for scripts. Shape and order of the members are a promise.
type lockJSON struct {
	Name                string         `json:"name"`
	NameBase64          string         `json:"name_base64,omitempty"`
	State               string         `json:"state"`
	UUID                *string        `json:"uuid"`
	Token               *int64         `json:"token"`
	Revision            int64          `json:"revision"`
	Owner               *string        `json:"owner"`
	Hostname            *string        `json:"hostname"`
	PID                 *int64         `json:"pid"`
	Purpose             *string        `json:"purpose"`
	LockedAt            *time.Time     `json:"locked_at"`
	AlertAt             *time.Time     `json:"alert_at"`
	AutoUnlockAt        *time.Time     `json:"auto_unlock_at"`
	AliveAt             *time.Time     `json:"alive_at"`
	HeldSeconds         *float64       `json:"held_seconds"`
	AlertInSeconds      *float64       `json:"alert_in_seconds"`
	AutoUnlockInSeconds *float64       `json:"auto_unlock_in_seconds"`
	Progress            *string        `json:"progress"`
	Attributes          map[string]any `json:"attributes"`
	Problems            []problemJSON  `json:"problems"`
	Waiters             int            `json:"waiters"`
	Kind                *string        `json:"kind"`
	ShareOf             *string        `json:"share_of"`
	Permits             *int           `json:"permits"`
	Limit               *int           `json:"limit"`
	ClockAheadSeconds   *float64       `json:"clock_ahead_seconds"`
}

type problemJSON struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

func newLockJSON(r *metadata.Record, waiters int, now time.Time) lockJSON {
	j := lockJSON{
		Name: r.Name, NameBase64: exactly(r.Name), State: string(judge(r, now).State),
		UUID: known(r.UUID), Token: known(r.Token), Revision: r.Revision,
		Owner: known(r.Owner), Hostname: known(r.Hostname), PID: known(r.PID), Purpose: known(r.Purpose),
		LockedAt: known(r.LockedAt), AlertAt: known(r.AlertAt), AutoUnlockAt: known(r.AutoUnlockAt),
		AlertInSeconds: until(r.AlertAt, now), AutoUnlockInSeconds: until(r.AutoUnlockAt, now),
		Attributes: r.Attributes, Problems: newProblemsJSON(r.Problems), Waiters: waiters,
	}
	p := partOf(r.Name, r.Attributes)
	j.Kind = known(p.kind)
	j.ShareOf = known(p.of)
	j.Permits = known(p.permits)
	j.Limit = known(p.limit)
	if r.Alive != nil {
		j.AliveAt, j.Progress = known(r.Alive.At), known(r.Alive.Progress)
	}
	if !r.LockedAt.IsZero() {
		j.HeldSeconds = until(now, r.LockedAt)
	}
	if off := judge(r, now).ClockOff; off > 0 {
		j.ClockAheadSeconds = until(now.Add(off), now)
	}
	if j.Attributes == nil {
		j.Attributes = map[string]any{}
	}
	return j
}

func newProblemsJSON(problems []metadata.Problem) []problemJSON {
	out := make([]problemJSON, 0, len(problems))
	for _, p := range problems {
		out = append(out, problemJSON{p.Field, string(p.Reason), p.Text})
	}
	return out
}

// judge is the state of the lock by the clock here. The unlocker's default policy for records without readable
// deadlines is not known here, so such a lock is malformed and stays it.
func judge(r *metadata.Record, now time.Time) staleness.Verdict {
	return staleness.Judge(r, staleness.Policy{}, staleness.Moment{Wall: now})
}

// known is nil for the zero value: null says "not known" where 0 and "" would say something else.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// until is the time from now to t in seconds, with milliseconds.
func until(t, now time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	seconds := float64(t.Sub(now).Milliseconds()) / 1000
	return &seconds
}

// exactly is the base64 form of bytes that JSON text can not carry, and nothing for all others.
func exactly(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// writeJSON writes v as one line. Characters that do not print, which a terminal may obey, become escapes; they mean
// the same.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var line []byte
	for _, r := range string(text) {
		switch {
		case strconv.IsPrint(r):
			line = utf8.AppendRune(line, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
