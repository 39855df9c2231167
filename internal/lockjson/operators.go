package lockjson

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Asked is a request to the holder to finish.
type Asked struct {
	By       *string  `json:"by"`
	Source   *string  `json:"source"`
	At       *string  `json:"at"`
	In       *float64 `json:"at_in_seconds"`
	Reason   *string  `json:"reason"`
	Answered *bool    `json:"answered"`
}

// Extended says who gave the holder more time.
type Extended struct {
	By           *string  `json:"by"`
	Source       *string  `json:"source"`
	At           *string  `json:"at"`
	In           *float64 `json:"at_in_seconds"`
	Reason       *string  `json:"reason"`
	Seconds      *int64   `json:"seconds"`
	AutoUnlockAt *string  `json:"auto_unlock_at"`
	AutoUnlockIn *float64 `json:"auto_unlock_at_in_seconds"`
}

// Acknowledged says who is looking at the lock.
type Acknowledged struct {
	By      *string  `json:"by"`
	Source  *string  `json:"source"`
	At      *string  `json:"at"`
	In      *float64 `json:"at_in_seconds"`
	Until   *string  `json:"until"`
	UntilIn *float64 `json:"until_in_seconds"`
	Note    *string  `json:"note"`
}

func newAcknowledged(a *metadata.Acknowledgement, now time.Time) *Acknowledged {
	if a == nil {
		return nil
	}
	j := &Acknowledged{By: OrNull(a.By), Source: OrNull(a.Source), Note: OrNull(a.Note)}
	j.At, j.In = Instant(a.At.Time, now)
	j.Until, j.UntilIn = Instant(a.Until.Time, now)
	return j
}

// AcknowledgedShape describes [Acknowledged].
func AcknowledgedShape() Shape {
	return Shape{"An acknowledgement", Acknowledged{}, []Line{
		{"by, source", "who looks at it, and where that name comes from: cli, basic, mtls or header"},
		{"at, until", "since when, and until when at most, by that person's clock"},
		{"note", "what they wrote; null when nothing"},
	}}
}

func newAsked(q *metadata.FinishRequest, answered *bool, now time.Time) *Asked {
	if q == nil {
		return nil
	}
	j := &Asked{By: OrNull(q.By), Source: OrNull(q.Source), Reason: OrNull(q.Reason), Answered: answered}
	j.At, j.In = Instant(q.At.Time, now)
	return j
}

func newExtended(e *metadata.MoreTime, now time.Time) *Extended {
	if e == nil {
		return nil
	}
	j := &Extended{By: OrNull(e.By), Source: OrNull(e.Source), Reason: OrNull(e.Reason), Seconds: OrNull(e.Seconds)}
	j.At, j.In = Instant(e.At.Time, now)
	j.AutoUnlockAt, j.AutoUnlockIn = Instant(e.AutoUnlockAt.Time, now)
	return j
}

// AskedShape describes [Asked].
func AskedShape() Shape {
	return Shape{"A request to finish", Asked{}, []Line{
		{"by, source", "who asks, and where that name comes from: cli, basic, mtls, header, or waiter"},
		{"at", "when, by the asker's clock"},
		{"reason", "why"},
		{"answered", "whether the holder called alive since; progress is then its answer; null in an ending"},
	}}
}

// ExtendedShape describes [Extended].
func ExtendedShape() Shape {
	return Shape{"More time", Extended{}, []Line{
		{"by, source", "who gave it, and where that name comes from: cli, basic, mtls or header"},
		{"at", "when, by that person's clock"},
		{"reason", "why"},
		{"seconds", "how much time was given"},
		{"auto_unlock_at", "the deadline before that"},
	}}
}
