package lockjson

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Author says who did something to a hold for its holder, and when.
type Author struct {
	By     *string  `json:"by"`
	Source *string  `json:"source"`
	At     *string  `json:"at"`
	In     *float64 `json:"at_in_seconds"`
}

func newAuthor(by, source string, at metadata.Time, now time.Time) Author {
	a := Author{By: OrNull(by), Source: OrNull(source)}
	a.At, a.In = Instant(at.Time, now)
	return a
}

// Asked is a request to the holder to finish.
type Asked struct {
	Author
	Reason   *string `json:"reason"`
	Answered *bool   `json:"answered"`
}

// Extended says who gave the holder more time.
type Extended struct {
	Author
	Reason       *string  `json:"reason"`
	Seconds      *int64   `json:"seconds"`
	AutoUnlockAt *string  `json:"auto_unlock_at"`
	AutoUnlockIn *float64 `json:"auto_unlock_at_in_seconds"`
}

// Acknowledged says who is looking at the lock.
type Acknowledged struct {
	Author
	Until   *string  `json:"until"`
	UntilIn *float64 `json:"until_in_seconds"`
	Note    *string  `json:"note"`
}

func newAcknowledged(a *metadata.Acknowledgement, now time.Time) *Acknowledged {
	if a == nil {
		return nil
	}
	j := &Acknowledged{Author: newAuthor(a.By, a.Source, a.At, now), Note: OrNull(a.Note)}
	j.Until, j.UntilIn = Instant(a.Until.Time, now)
	return j
}

func newAsked(q *metadata.FinishRequest, answered *bool, now time.Time) *Asked {
	if q == nil {
		return nil
	}
	return &Asked{newAuthor(q.By, q.Source, q.At, now), OrNull(q.Reason), answered}
}

func newExtended(m *metadata.MoreTime, now time.Time) *Extended {
	if m == nil {
		return nil
	}
	j := &Extended{Author: newAuthor(m.By, m.Source, m.At, now), Reason: OrNull(m.Reason), Seconds: OrNull(m.Seconds)}
	j.AutoUnlockAt, j.AutoUnlockIn = Instant(m.AutoUnlockAt.Time, now)
	return j
}
