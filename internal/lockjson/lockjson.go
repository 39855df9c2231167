// Package lockjson defines the JSON shape of a lock, for the page's API and for mutexctl. docs/json.md describes it.
//
// Names are in snake case. A time is RFC 3339 in UTC with milliseconds, followed by the same in seconds relative to the
// time of the answer, for callers whose clock is off. Tokens and revisions are strings: JavaScript loses the digits of
// numbers beyond 2^53. Unknown values are null, never 0 or "". Bytes that are not UTF-8 are in standard base64.
package lockjson

import (
	"cmp"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Lock is a lock, or one of the holds of a lock that several can hold. Its shape and the order of its members are
// stable.
type Lock struct {
	Name       string          `json:"name"`
	NameBase64 string          `json:"name_base64,omitempty"`
	State      *metadata.State `json:"state"`
	Expiring   bool            `json:"expiring"`
	UUID       *string         `json:"uuid"`
	Token      *string         `json:"token"`
	Revision   *string         `json:"revision"`
	Holder
	Problems            []Problem     `json:"problems"`
	Waiters             *int          `json:"waiters"`
	LongestWaitingSince *string       `json:"longest_waiting_since"`
	LongestWaitingIn    *float64      `json:"longest_waiting_since_in_seconds"`
	Kind                *string       `json:"kind"`
	ShareOf             *string       `json:"share_of"`
	Permits             *int          `json:"permits"`
	Limit               *int          `json:"limit"`
	ClockOffset         *float64      `json:"clock_offset_seconds"`
	Process             *Process      `json:"process"`
	Death               *Statement    `json:"death"`
	Suspicion           *Statement    `json:"suspicion"`
	Asked               *Asked        `json:"asked"`
	Extended            *Extended     `json:"extended"`
	Acknowledged        *Acknowledged `json:"acknowledged"`
	HeartbeatUntil      *string       `json:"heartbeat_until"`
	HeartbeatIn         *float64      `json:"heartbeat_until_in_seconds"`
	Leased              *Leased       `json:"leased,omitempty"`
	URL                 string        `json:"url,omitempty"`
}

// Leased is what is known of a lock of another library.
type Leased struct {
	Key    string   `json:"key"`
	Single bool     `json:"single_key"`
	Lease  string   `json:"lease"`
	TTL    *float64 `json:"ttl_seconds"`
	EndsAt *string  `json:"ends_at"`
	EndsIn *float64 `json:"ends_at_in_seconds"`
}

// Holder is who holds a lock, or held it, and what that process recorded.
type Holder struct {
	Who
	LockedAt     *string        `json:"locked_at"`
	LockedIn     *float64       `json:"locked_at_in_seconds"`
	AlertAt      *string        `json:"alert_at"`
	AlertIn      *float64       `json:"alert_at_in_seconds"`
	AutoUnlockAt *string        `json:"auto_unlock_at"`
	AutoUnlockIn *float64       `json:"auto_unlock_at_in_seconds"`
	AliveAt      *string        `json:"alive_at"`
	AliveIn      *float64       `json:"alive_at_in_seconds"`
	Progress     *string        `json:"progress"`
	Attributes   map[string]any `json:"attributes"`
}

// Who is a program that holds a lock or waits for it, and what for, as the program recorded it.
type Who struct {
	Owner    *string `json:"owner"`
	Hostname *string `json:"hostname"`
	PID      *int64  `json:"pid"`
	Purpose  *string `json:"purpose"`
}

func newWho(h metadata.Identity) Who {
	return Who{Owner: OrNull(h.Owner), Hostname: OrNull(h.Hostname), PID: OrNull(h.PID), Purpose: OrNull(h.Purpose)}
}

// Problem is something that is wrong with a record.
type Problem struct {
	Field  string               `json:"field"`
	Reason metadata.ProblemKind `json:"reason"`
	Text   string               `json:"text"`
}

// New describes a hold at now.
func New(row *locks.Row, now time.Time) Lock {
	r := row.Record
	share := row.Share()
	l := Lock{
		Name: r.Name, NameBase64: Base64(r.Name), State: &row.State, Expiring: row.Display == metadata.StateExpiring,
		UUID: OrNull(r.UUID), Token: Text(r.Token), Revision: Text(r.Revision),
		Holder: Holder{Who: newWho(r.Identity), Attributes: attributes(r.Attributes)}, Problems: problems(r.Problems),
		Kind: OrNull(share.Kind), ShareOf: OrNull(share.LockName),
		Permits: OrNull(share.Permits), Limit: OrNull(share.Limit),
		ClockOffset: OrNull(seconds(row.ClockOff)), Process: newProcess(r.Process),
		Asked: newAsked(r.FinishRequest, new(r.AliveSinceRequest()), now), Extended: newExtended(r.MoreTime, now),
		Acknowledged: newAcknowledged(r.ValidAcknowledgement(now), now),
	}
	l.LockedAt, l.LockedIn = Instant(r.LockedAt, now)
	l.AlertAt, l.AlertIn = Instant(row.DueAlert, now)
	l.AutoUnlockAt, l.AutoUnlockIn = Instant(row.DueUnlock(), now)
	l.HeartbeatUntil, l.HeartbeatIn = Instant(r.HeartbeatUntil, now)
	if r.Alive != nil {
		l.AliveAt, l.AliveIn = Instant(r.Alive.At, now)
		l.Progress = OrNull(r.Alive.Progress)
	}
	l.Suspicion = newStatement(r.Suspicion, now)
	if l.Death = newStatement(r.Death, now); l.Death != nil {
		l.Death.Believed = r.ProvenDead()
		l.Death.Disputed = r.Disputed()
		l.Death.UnlockAt, l.Death.UnlockIn = Instant(row.RemoveAt, now)
	}
	l.wait(row.WaitSummary, now)
	if of := row.Leased; of != nil {
		l.Leased = &Leased{Key: of.Key, Single: of.Key == r.Name, Lease: strconv.FormatInt(of.Lease.ID, 16),
			TTL: OrNull(seconds(of.Lease.TTL))}
		l.Leased.EndsAt, l.Leased.EndsIn = Instant(of.Lease.Expires, now)
	}
	return l
}

func (l *Lock) wait(q *locks.WaitSummary, now time.Time) {
	l.Waiters = &q.Waiters
	l.LongestWaitingSince, l.LongestWaitingIn = Instant(q.Longest, now)
}

// NewAggregate describes a lock without a record of its own: several hold it, or nobody does. Its state is the worst of
// its holders' states, its permits are those taken, and members that only a single hold has are null.
func NewAggregate(name string, holders []*locks.Row, q *locks.WaitSummary, now time.Time) Lock {
	l := Lock{Name: name, NameBase64: Base64(name), Holder: Holder{Attributes: map[string]any{}},
		Problems: []Problem{}}
	l.wait(q, now)
	for _, r := range holders {
		if l.State == nil || r.State.Urgency() < l.State.Urgency() {
			l.State = &r.State
		}
		share := r.Share()
		l.Expiring = l.Expiring || r.Display == metadata.StateExpiring
		l.Kind = cmp.Or(l.Kind, OrNull(share.Kind))
		l.Permits = OrNull(share.Permits + OrZero(l.Permits))
		l.Limit = OrNull(max(share.Limit, OrZero(l.Limit)))
	}
	return l
}

func attributes(all map[string]any) map[string]any {
	if all == nil {
		return map[string]any{}
	}
	return all
}

func problems(all []metadata.Problem) []Problem {
	list := make([]Problem, len(all))
	for i, p := range all {
		list[i] = Problem{p.Field, p.Kind, p.Text}
	}
	return list
}

// OrNull returns a pointer to v; nil for the zero value, which means unknown.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// OrZero is the reverse of [OrNull].
func OrZero[T any](v *T) T {
	if v == nil {
		return *new(T)
	}
	return *v
}

// Text returns a token or a revision; nil for 0.
func Text(n int64) *string {
	if n == 0 {
		return nil
	}
	s := strconv.FormatInt(n, 10)
	return &s
}

// Instant returns t and its distance from now in seconds; both are nil for the zero time.
func Instant(t, now time.Time) (at *string, in *float64) {
	if t.IsZero() {
		return nil, nil
	}
	s := Time(t)
	distance := seconds(t.Sub(now))
	return &s, &distance
}

// Time formats an instant for programs, with milliseconds.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// Base64 returns bytes that a JSON string cannot carry in base64; empty for UTF-8.
func Base64(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// Ending is a hold that is over.
type Ending struct {
	Name       string  `json:"name"`
	NameBase64 string  `json:"name_base64,omitempty"`
	UUID       *string `json:"uuid"`
	Token      *string `json:"token"`
	Holder
	EndedAt      *string       `json:"ended_at"`
	EndedIn      *float64      `json:"ended_at_in_seconds"`
	How          *string       `json:"how"`
	By           *string       `json:"by"`
	Why          *string       `json:"why"`
	Asked        *Asked        `json:"asked"`
	Extended     *Extended     `json:"extended"`
	Acknowledged *Acknowledged `json:"acknowledged"`
}

// EndingWord returns the word for how a hold ended; an unknown one unchanged.
func EndingWord(ended string) *string {
	if words, known := metadata.EndingWordsFor(ended); known {
		return &words.Word
	}
	return OrNull(ended)
}

// NewEnding describes how a hold ended.
func NewEnding(e *metadata.Ending, now time.Time) Ending {
	j := Ending{
		Name: e.Name, NameBase64: Base64(e.Name), UUID: OrNull(e.UUID), Token: Text(e.Token),
		Holder: Holder{Who: newWho(e.Identity), Progress: OrNull(e.Progress), Attributes: attributes(e.Attributes)},
		How:    EndingWord(e.Cause), By: OrNull(e.By), Why: OrNull(e.Reason),
		Asked: newAsked(e.FinishRequest, nil, now), Extended: newExtended(e.MoreTime, now),
		Acknowledged: newAcknowledged(e.Acknowledgement, now),
	}
	j.LockedAt, j.LockedIn = Instant(e.LockedAt.Time, now)
	j.AlertAt, j.AlertIn = Instant(e.AlertAt.Time, now)
	j.AutoUnlockAt, j.AutoUnlockIn = Instant(e.AutoUnlockAt.Time, now)
	j.AliveAt, j.AliveIn = Instant(e.AliveAt.Time, now)
	j.EndedAt, j.EndedIn = Instant(e.EndedAt.Time, now)
	return j
}

// Interval is a hold or a wait of a timeline.
type Interval struct {
	Name       string   `json:"name"`
	NameBase64 string   `json:"name_base64,omitempty"`
	ShareOf    *string  `json:"share_of"`
	Wait       bool     `json:"wait"`
	UUID       *string  `json:"uuid"`
	Token      *string  `json:"token"`
	Owner      *string  `json:"owner"`
	Hostname   *string  `json:"hostname"`
	PID        *int64   `json:"pid"`
	BeganAt    *string  `json:"began_at"`
	BeganIn    *float64 `json:"began_at_in_seconds"`
	EndedAt    *string  `json:"ended_at"`
	EndedIn    *float64 `json:"ended_at_in_seconds"`
	AlertAt    *string  `json:"alert_at"`
	AlertIn    *float64 `json:"alert_at_in_seconds"`
	How        *string  `json:"how"`
}

// Headline is what a person must know first.
type Headline struct {
	Class    string  `json:"class"`
	Severity string  `json:"severity"`
	Sentence string  `json:"sentence"`
	Lock     *string `json:"lock"`
	Next     *string `json:"next"`
	Command  *string `json:"command"`
}

// NewHeadline describes a headline, with its sentence at the time of the answer, and its command.
func NewHeadline(v *headline.Headline, sentence, command string) *Headline {
	return &Headline{v.Class.String(), v.Class.Severity(), sentence, OrNull(v.Lock), OrNull(string(v.Next())),
		OrNull(command)}
}
