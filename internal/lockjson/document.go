package lockjson

import (
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Document is one lock in full.
type Document struct {
	Lock
	Client    *string    `json:"client"`
	Diagnosis *Diagnosis `json:"diagnosis"`
	Backtrace *string    `json:"backtrace,omitempty"`
	Queue     []Waiter   `json:"queue"`
	Holders   []Lock     `json:"holders,omitempty"`
	Delays    []Delay    `json:"delays,omitempty"`
	Fields    []Field    `json:"fields,omitempty"`
	Ending    *Ending    `json:"ending,omitempty"`
	Unread    *string    `json:"unread,omitempty"`
}

// Diagnosis is what is probably the matter with a holder.
type Diagnosis struct {
	Holder string `json:"holder"`
	Why    string `json:"why"`
}

// NewDiagnosis describes a diagnosis; nil where nothing is known.
func NewDiagnosis(d diagnosis.Diagnosis, now time.Time) *Diagnosis {
	if d.Word == diagnosis.Unknown {
		return nil
	}
	return &Diagnosis{string(d.Word), d.Reason(now)}
}

// Waiter is a process that waits for a lock.
type Waiter struct {
	UUID *string `json:"uuid"`
	Who
	Since     *string  `json:"since"`
	SinceIn   *float64 `json:"since_in_seconds"`
	TimeoutAt *string  `json:"timeout_at"`
	TimeoutIn *float64 `json:"timeout_at_in_seconds"`
}

// Waiters describes those who wait for a lock, in their order.
func Waiters(queue []metadata.Waiter, now time.Time) []Waiter {
	list := make([]Waiter, len(queue))
	for i, w := range queue {
		list[i] = Waiter{UUID: Known(w.UUID), Who: newWho(w.Holder)}
		list[i].Since, list[i].SinceIn = Instant(w.Since.Time, now)
		list[i].TimeoutAt, list[i].TimeoutIn = Instant(w.TimeoutAt.Time, now)
	}
	return list
}

// Field is one key of a record, as it is stored.
type Field struct {
	Name           string  `json:"name"`
	Value          *string `json:"value,omitempty"`
	ValueBase64    string  `json:"value_base64,omitempty"`
	CreateRevision string  `json:"create_revision"`
	ModRevision    string  `json:"mod_revision"`
}

// NewField describes a key.
func NewField(f metadata.Field) Field {
	j := Field{Name: f.Name, ValueBase64: Base64(f.Value), CreateRevision: strconv.FormatInt(f.CreateRevision, 10),
		ModRevision: strconv.FormatInt(f.ModRevision, 10)}
	if j.ValueBase64 == "" {
		j.Value = &f.Value
	}
	return j
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
	Cluster      string        `json:"cluster,omitempty"` // of several
}

// how a hold ended, in the word for it; what is not known stays as it is.
func how(ended string) *string {
	if words, known := metadata.EndingOf(ended); known {
		return &words.Word
	}
	return Known(ended)
}

// NewEnding describes how a hold ended.
func NewEnding(e *metadata.Ending, now time.Time) Ending {
	j := Ending{
		Name: e.Lock, NameBase64: Base64(e.Lock), UUID: Known(e.UUID), Token: Number(e.Token),
		Holder: Holder{Who: newWho(e.Holder), Progress: Known(e.Progress), Attributes: attributes(e.Attributes)},
		How:    how(e.Ended), By: Known(e.By), Why: Known(e.Why),
		Asked: newRequest(e.Asked, now), Extended: newExtended(e.Extended, now),
		Acknowledged: newAcknowledged(e.Acknowledged, now),
	}
	j.LockedAt, j.LockedIn = Instant(e.LockedAt.Time, now)
	j.AlertAt, j.AlertIn = Instant(e.AlertAt.Time, now)
	j.AutoUnlockAt, j.AutoUnlockIn = Instant(e.AutoUnlockAt.Time, now)
	j.AliveAt, j.AliveIn = Instant(e.AliveAt.Time, now)
	j.EndedAt, j.EndedIn = Instant(e.EndedAt.Time, now)
	return j
}
