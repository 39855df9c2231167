package metadata

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Ticket is a waiter's place in the queue of a lock, as its key has it.
type Ticket struct {
	UUID string `json:"uuid"` // of the waiting acquisition, and of its hold once it gets the lock
	Identity
	// Since is when the call began to wait, by the waiter's clock. Its next ticket after an outage has the same.
	Since     Time `json:"since"`
	TimeoutAt Time `json:"timeout_at"`
	// Under has the uuids of the holds under which the waiter works, separated by blanks: they last until it is done.
	Under   string `json:"under,omitempty"`
	Holding bool   `json:"holding,omitempty"` // its owner has the lock and no longer waits
}

// Waiter is a ticket in the queue of a lock. The waiter with the least Revision is next.
type Waiter struct {
	Ticket
	Name     string // of the lock
	ID       string // the last part of the ticket's key
	Revision int64  // create revision of the ticket
	// Seen is when the reader first saw the ticket with this Since, on the clock of [Seen].
	Seen time.Duration `json:"-"`
}

// Ending records that an unlocker or an operator ended a hold: who, when and why, and what the record said then.
type Ending struct {
	Name  string `json:"lock"` // of the lock
	UUID  string `json:"uuid"`
	Token int64  `json:"token"`
	Identity
	LockedAt      Time           `json:"locked_at"`
	SeenAt        time.Time      `json:"-"` // as in [Record]
	AlertAt       Time           `json:"alert_at"`
	AutoUnlockAt  Time           `json:"auto_unlock_at"`
	AliveAt       Time           `json:"alive_at,omitzero"`
	Progress      string         `json:"progress,omitempty"`
	Attributes    map[string]any `json:"attributes,omitempty"`
	EndedAt       Time           `json:"ended_at"`
	Cause         string         `json:"ended"` // EndingAutoUnlocked, EndingAbandoned or EndingForced
	By            string         `json:"by"`    // the unlocker's id or the operator
	Reason        string         `json:"why"`   // a sentence
	FinishRequest *FinishRequest `json:"asked,omitempty"`
	MoreTime      *MoreTime      `json:"extended,omitempty"`
	// Acknowledgement is the one that was valid when the hold ended; nil if none was.
	Acknowledgement *Acknowledgement `json:"acknowledged,omitempty"`
}

// HistoryID identifies the hold in the history: its uuid or, if that is not a valid UUID, "hold-" and the token.
func (r *Record) HistoryID() string {
	if IsUUID(r.UUID) {
		return r.UUID
	}
	return "hold-" + strconv.FormatInt(r.Token, 10)
}

// HistoryID returns the id under which the ending of the hold is recorded.
func (e *Ending) HistoryID() string {
	return (&Record{UUID: e.UUID, Token: e.Token}).HistoryID()
}

// SourceWaiter is the source of a request by a client that waits for the lock.
const SourceWaiter = "waiter"

// FinishRequest is a request to the holder of one hold to finish early, by an operator or a waiting client.
type FinishRequest struct {
	UUID   string `json:"uuid"`
	Token  int64  `json:"token"`
	By     string `json:"by"`     // an operator, or the owner of a waiting client
	Source string `json:"source"` // where the name comes from: cli, basic, mtls, header, or waiter
	At     Time   `json:"at"`
	Reason string `json:"reason"`

	Revision int64 `json:"-"` // mod revision of its key, set by the reader
}

// AliveSinceRequest reports whether the holder was asked to finish and has called alive since.
func (r *Record) AliveSinceRequest() bool {
	return r.FinishRequest != nil && r.Alive != nil && r.Alive.Revision > r.FinishRequest.Revision
}

// MoreTime records that an operator gave one hold more time: both deadlines were moved forward.
type MoreTime struct {
	UUID         string `json:"uuid"`
	Token        int64  `json:"token"`
	By           string `json:"by"`
	Source       string `json:"source"` // as in a [FinishRequest]
	At           Time   `json:"at"`
	Reason       string `json:"reason"`
	AutoUnlockAt Time   `json:"auto_unlock_at"`    // as it was before
	Seconds      int64  `json:"seconds,omitempty"` // how much time was given; 0 = not recorded
}

// Duration returns how much time was given; 0 = unknown.
func (m *MoreTime) Duration() time.Duration { return time.Duration(m.Seconds) * time.Second }

// Acknowledgement records that an operator is looking at one hold. It changes nothing for the holder and silences no
// alert.
type Acknowledgement struct {
	UUID   string `json:"uuid"`
	Token  int64  `json:"token"`
	By     string `json:"by"`
	Source string `json:"source"` // as in a [FinishRequest], but never waiter
	At     Time   `json:"at"`
	Until  Time   `json:"until"` // when its key expires, by its writer's clock
	Note   string `json:"note"`  // one line; may be empty

	Revision int64 `json:"-"` // mod revision of its key, set by the reader
}

// ValidAcknowledgement returns the acknowledgement of the hold in r that is valid at now, or nil. It ends at its Until
// even if its key still exists: the key may outlive it by as long as etcd was without a leader.
func (r *Record) ValidAcknowledgement(now time.Time) *Acknowledgement {
	if a := r.Acknowledgement; a != nil && now.Before(a.Until.Time) {
		return a
	}
	return nil
}

// ErrChanged means that nothing was removed because the hold has changed since it was judged or shown: it was released,
// extended, or the lock was taken by another client. Read the lock again instead of retrying.
var ErrChanged = errors.New("the hold changed")

// ErrOutcomeUnknown means that etcd's answer was lost: the request may have been committed, or may yet be. Read the
// keys that it writes to learn which. A lock that such a request took is released in the background.
var ErrOutcomeUnknown = errors.New("the outcome is unknown: it may or may not have been done")

// MaxLockDelay is the longest lock delay. Readers shorten a longer one to it.
const MaxLockDelay = time.Hour

// NoLockDelay is the lock delay of a record that asks for none, whatever an unlocker's default.
const NoLockDelay = -1

// LockDelay keeps clients from taking a lock for a while after a hold was ended by force or because of its deadline:
// the former holder may still be working. It ends with the lease of its key. Clients that do not support it ignore it.
type LockDelay struct {
	Name     string `json:"lock"` // of the lock whose hold ended, or of the share
	UUID     string `json:"uuid"` // of that hold, like the next members
	Token    int64  `json:"token"`
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
	Permits  int    `json:"permits,omitempty"` // of a semaphore: how many that hold had; 0 = 1
	Cause    string `json:"ended"`             // EndingAutoUnlocked or EndingForced
	By       string `json:"by"`                // the unlocker's id or the operator
	At       Time   `json:"at"`                // when the hold was ended, by the clock of the program that ended it
	Seconds  int64  `json:"seconds"`           // the least duration of the delay

	Revision   int64 `json:"-"` // mod revision of the key
	Leased     bool  `json:"-"` // the key expires
	Unreadable bool  `json:"-"` // nothing but Name, Revision and Leased is known
}

// Until returns when the delay is over, give or take clock differences and late leases; zero if unknown.
func (d *LockDelay) Until() time.Time {
	if d.At.IsZero() || d.Seconds <= 0 || !d.Leased {
		return time.Time{}
	}
	return d.At.Add(time.Duration(d.Seconds) * time.Second)
}

// EffectiveLockDelay returns the lock delay that follows a hold ended by force or by its deadline: the one in its
// record or, if it has none, standard. Zero means none.
func (r *Record) EffectiveLockDelay(standard time.Duration) time.Duration {
	switch {
	case r.Token == 0 || r.Misplaced: // no hold ends
		return 0
	case r.LockDelay == 0:
		return max(standard, 0)
	}
	return max(r.LockDelay, 0)
}

// CheckLockDelay returns an error if the lock delay is out of range. [NoLockDelay] is not.
func CheckLockDelay(d time.Duration) error {
	if d != NoLockDelay && d < 0 || d > MaxLockDelay {
		return fmt.Errorf("the lock delay is %v: it must be between 0 and %v", d, MaxLockDelay)
	}
	return nil
}
