package metadata

import (
	"fmt"
	"time"
)

// MaxLockDelay is the longest lock delay. Readers take a longer one for this.
const MaxLockDelay = time.Hour

// NoLockDelay is the lock delay of a record that wants none, whatever the default of an unlocker.
const NoLockDelay = -1

// Delay is the value of a delay key: while the key exists, nobody who knows delays takes the lock. Its lease ends it.
type Delay struct {
	Lock     string `json:"lock"` // whose hold ended: the lock, or a share of it
	UUID     string `json:"uuid"` // of that hold, like the next members
	Token    int64  `json:"token"`
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
	Permits  int    `json:"permits,omitempty"` // of a semaphore: how many that hold had; 0 = 1
	Ended    string `json:"ended"`             // EndedAutoUnlocked or EndedForced
	By       string `json:"by"`                // the unlocker's id or the operator
	At       Time   `json:"at"`                // when the hold was ended, by the clock of whoever ended it
	Seconds  int64  `json:"seconds"`           // how long the delay lasts, at least

	Revision   int64 `json:"-"` // mod revision of the key
	Leased     bool  `json:"-"` // the key goes by itself
	Unreadable bool  `json:"-"` // nothing but Lock, Revision and Leased is known
}

// Until is when the delay is over, give or take what clocks differ and leases are late; zero if that is not known.
func (d *Delay) Until() time.Time {
	if d.At.IsZero() || d.Seconds <= 0 || !d.Leased {
		return time.Time{}
	}
	return d.At.Add(time.Duration(d.Seconds) * time.Second)
}

// DelayOf is the lock delay that follows a hold which is ended by force or by its deadline: what its record says or, if
// it says nothing, standard. Zero means none.
func (r *Record) DelayOf(standard time.Duration) time.Duration {
	switch {
	case r.Token == 0 || r.Misplaced: // no hold ends
		return 0
	case r.LockDelay == 0:
		return max(standard, 0)
	}
	return max(r.LockDelay, 0)
}

// NewDelay returns what to write when a removal is followed by a delay.
func NewDelay(r Removal) Delay {
	d := Delay{
		Lock: r.Record.Name, UUID: r.Record.UUID, Token: r.Record.Token, Owner: r.Record.Owner,
		Hostname: r.Record.Hostname, Purpose: r.Record.Purpose, Ended: r.Ending.Ended, By: r.Ending.By,
		At: r.Ending.EndedAt, Seconds: int64(wholeSeconds(r.Delay) / time.Second),
	}
	if s := ShareOf(r.Record.Name, r.Record.Attributes); s.Kind == HoldsPermits {
		d.Permits = s.Permits
	}
	return d
}

// CheckLockDelay returns what is wrong with a lock delay, as a sentence, or nil.
func CheckLockDelay(d time.Duration) error {
	if d != NoLockDelay && d < 0 || d > MaxLockDelay {
		return fmt.Errorf("the lock delay is %v, it must be between 0 and %v", d, MaxLockDelay)
	}
	return nil
}

// delaySeconds is the member of the document.
func delaySeconds(d time.Duration) int64 { return int64(wholeSeconds(max(d, 0)) / time.Second) }

func wholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// lockDelay reads the member: a whole number of seconds.
func (d *decoder) lockDelay(name, value string) time.Duration {
	before := len(d.doc.Problems)
	seconds := d.number(name, value)
	switch most := int64(MaxLockDelay / time.Second); {
	case len(d.doc.Problems) > before: // as if the record did not say
		return 0
	case seconds == 0:
		return NoLockDelay
	case seconds > most:
		d.problem(name, ReasonTooLarge, fmt.Sprintf("%d seconds, %d count", seconds, most))
		return MaxLockDelay
	}
	return time.Duration(seconds) * time.Second
}
