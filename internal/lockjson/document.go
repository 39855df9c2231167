package lockjson

import (
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxListed is how many waiters, holders and lock delays a document lists; beside each list is how many there are.
const maxListed = 1000

// first returns the part of a list that a document has.
func first[T any](all []T) []T { return all[:min(len(all), maxListed)] }

// Document is one lock in full.
type Document struct {
	Lock
	Headline    *Headline  `json:"headline"`
	Client      *string    `json:"client"`
	Diagnosis   *Diagnosis `json:"diagnosis"`
	UsualHold   *UsualHold `json:"usual_hold,omitempty"`
	Backtrace   *string    `json:"backtrace,omitempty"`
	Queue       []Waiter   `json:"queue"`
	HolderCount int        `json:"holder_count,omitempty"`
	Holders     []Lock     `json:"holders,omitempty"`
	DelayCount  int        `json:"delay_count,omitempty"`
	Delays      []Delay    `json:"delays,omitempty"`
	Fields      []Field    `json:"fields,omitempty"`
	Ending      *Ending    `json:"ending,omitempty"`
	Unread      *string    `json:"unread,omitempty"`
}

// NewDocument describes a lock and all its holders. row is nil for a lock without a record of its own.
func NewDocument(name string, row *locks.Row, shares []*locks.Row, waiters []metadata.Waiter,
	delays []metadata.LockDelay, now time.Time) Document {
	j := Document{Queue: newWaiters(waiters, now), HolderCount: len(shares), DelayCount: len(delays),
		Delays: Delays(delays, now)}
	for _, r := range first(locks.Sort(shares, locks.Order{By: locks.MostUrgent})) {
		j.Holders = append(j.Holders, New(r, now))
	}
	if row == nil {
		j.Lock = NewAggregate(name, shares, new(locks.SummarizeWaiters(waiters, now)), now)
	} else {
		j.Lock = New(row, now)
	}
	return j
}

// UsualHold is how long holds of a lock usually take.
type UsualHold struct {
	Seconds float64 `json:"seconds"`
	Holds   int     `json:"holds"`
}

// NewUsualHold describes the median of this many holds; nil if there are none.
func NewUsualHold(median time.Duration, holds int) *UsualHold {
	if holds == 0 {
		return nil
	}
	return &UsualHold{seconds(median), holds}
}

// Diagnosis is the probable condition of a holder.
type Diagnosis struct {
	Holder string `json:"holder"`
	Why    string `json:"why"`
}

// NewDiagnosis describes a diagnosis; nil if nothing is known.
func NewDiagnosis(d diagnosis.Diagnosis, now time.Time) *Diagnosis {
	if d.Condition == diagnosis.Unknown {
		return nil
	}
	return &Diagnosis{string(d.Condition), d.Why.String(now)}
}

// Waiter is a process that waits for a lock.
type Waiter struct {
	UUID *string `json:"uuid"`
	Who
	Since     *string  `json:"since"`
	SinceIn   *float64 `json:"since_in_seconds"`
	TimeoutAt *string  `json:"timeout_at"`
	TimeoutIn *float64 `json:"timeout_at_in_seconds"`
	Under     []string `json:"under,omitempty"`
}

// newWaiters describes the first waiters for a lock, in order.
func newWaiters(queue []metadata.Waiter, now time.Time) []Waiter {
	queue = first(queue)
	list := make([]Waiter, len(queue))
	for i, w := range queue {
		list[i] = Waiter{UUID: OrNull(w.UUID), Who: newWho(w.Identity), Under: strings.Fields(w.Under)}
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
