package lockjson

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Delay is a lock delay: nobody who knows delays follows a hold that was ended. What cannot be read is null.
type Delay struct {
	Name       string   `json:"name"`
	NameBase64 string   `json:"name_base64,omitempty"`
	UUID       *string  `json:"uuid"`
	Token      *string  `json:"token"`
	Revision   *string  `json:"revision"`
	Owner      *string  `json:"owner"`
	Hostname   *string  `json:"hostname"`
	Purpose    *string  `json:"purpose"`
	Permits    *int     `json:"permits"`
	How        *string  `json:"how"`
	By         *string  `json:"by"`
	EndedAt    *string  `json:"ended_at"`
	EndedIn    *float64 `json:"ended_at_in_seconds"`
	Seconds    *int64   `json:"seconds"`
	Until      *string  `json:"until"`
	UntilIn    *float64 `json:"until_in_seconds"`
}

// NewDelay describes a lock delay.
func NewDelay(d *metadata.Delay, now time.Time) Delay {
	j := Delay{Name: d.Lock, NameBase64: Base64(d.Lock), UUID: Known(d.UUID), Token: Number(d.Token),
		Revision: Number(d.Revision), Owner: Known(d.Owner), Hostname: Known(d.Hostname), Purpose: Known(d.Purpose),
		Permits: Known(d.Permits), How: how(d.Ended), By: Known(d.By), Seconds: Known(d.Seconds)}
	j.EndedAt, j.EndedIn = Instant(d.At.Time, now)
	j.Until, j.UntilIn = Instant(d.Until(), now)
	return j
}

// Delays describes lock delays, in their order.
func Delays(all []metadata.Delay, now time.Time) []Delay {
	list := make([]Delay, len(all))
	for i := range all {
		list[i] = NewDelay(&all[i], now)
	}
	return list
}

// DelayShape describes [Delay].
func DelayShape() Shape {
	return Shape{"A lock delay", Delay{}, []Line{
		{"name", "the lock, or the share of it, whose hold was ended"},
		{"name_base64", "the exact bytes of a name that is not UTF-8; else absent"},
		{"uuid, token", "the hold that was ended"},
		{"revision", "the revision of the delay's key, to name this delay"},
		{"owner, hostname, purpose", "as the former holder recorded them"},
		{"permits", "of a semaphore: how many that hold had; they are not given out yet"},
		{"how, by", "auto-unlocked or force-unlocked; by which unlocker or operator"},
		{"ended_at", "when the hold was ended"},
		{"seconds", "how long the delay lasts, at least"},
		{"until", "when it is over, at the earliest; null when the key has no lease and stays"},
	}}
}
