// Package metadata describes locks as etcd has them: records of holds, waiters, endings, lock delays, statements of
// witnesses and presences of unlockers, in protocol version 1.
//
// A [Record] describes one hold. Whatever cannot be read of it is listed in its Problems. Names, owners, purposes and
// attributes are text that other programs wrote: escape them.
//
// [States] and [Endings] define the words for the state of a lock and for how a hold ended.
//
// The package is pure: no clock, no I/O, no etcd. Packages mutex and inspect return its types.
package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The attributes that name the trace in which a lock was taken, in hexadecimal as in W3C Trace Context.
const (
	AttributeTraceID = "trace_id" // 32 digits
	AttributeSpanID  = "span_id"  // 16 digits: of the span in which the lock was requested
)

// Field is one key of a record, without the prefix that all keys of the record share.
type Field struct {
	Name           string
	Value          string
	CreateRevision int64
	ModRevision    int64
	Version        int64 // how often the key was written since it was created; 0 = unknown
	Size           int   // bytes of the value in etcd if Value is only a part of it; else 0
}

// Record describes one hold of a lock, as its keys in etcd do, without its large fields: see [FullRecord].
type Record struct {
	Name string // the lock's name; may be one that [CheckName] refuses, see Problems
	UUID string // identity of this hold; empty if the uuid key is missing, see Token

	Identity

	LockedAt     time.Time // holder's clock; zero if missing or unreadable, like the two deadlines
	AlertAt      time.Time
	AutoUnlockAt time.Time

	// LockDelay is how long no client may take the lock after this hold is ended by an unlocker or operator, in whole
	// seconds; 0 if the record does not say, NoLockDelay if it asks for none.
	LockDelay time.Duration

	// HeartbeatUntil is the last AutoUnlockAt that the holder's heartbeats write; zero if the record does not say.
	HeartbeatUntil time.Time

	// Token is the fencing token, the create revision of the uuid key; 0 if that key is missing, so that nobody holds
	// the lock.
	Token            int64
	Revision         int64 // highest mod revision of the record's keys
	DeadlineRevision int64 // mod revision of the auto_unlock_at key, leftover or not; 0 if there is none
	Extensions       int64 // how often the deadline was moved, if the version of its key is known

	Alive         *Alive         // the last alive call; nil if there was none
	Process       *Process       // identifies the holder's process; nil if the record does not
	FinishRequest *FinishRequest // the request to finish; nil if there is none for this hold
	MoreTime      *MoreTime      // what an operator gave this hold last; nil if nobody gave it more time
	// Acknowledgement is that of an operator who is looking at this hold; nil if there is none. It may have ended: see
	// [Record.ValidAcknowledgement].
	Acknowledgement *Acknowledgement

	Attributes map[string]any // text, numbers (json.Number) and booleans; nil when there are none
	Problems   []Problem      // what is wrong with the record; nil if nothing is

	// Misplaced reports whether the record lies where no lock's keys can be. It is shown, but never removed.
	Misplaced bool

	// The statements of witnesses about this hold; nil if there are none. They are set by the reader, who reads them
	// from keys of their own.
	Death     *Statement // that the holder has ended; see [Record.ProvenDead]
	Suspicion *Statement

	Seen Seen // zero unless the reader keeps the record
	// SeenAt is when the hold of a lock of another library was first seen: etcd has no LockedAt of it. Else zero.
	SeenAt time.Time
}

// Malformed reports whether the record lacks its uuid or a readable deadline, or is misplaced. Other problems are only
// shown.
func (r *Record) Malformed() bool {
	return r.Misplaced || r.UUID == "" || r.AlertAt.IsZero() || r.AutoUnlockAt.IsZero()
}

// HasForeignKeys reports whether keys that fit no layout lie inside the record's range, so that deleting the range
// would delete them, too.
func (r *Record) HasForeignKeys() bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Kind == ProblemUnknownLayout })
}

// Identity has the owner, host and process of a holder or waiter, and its purpose. Any field may be unknown: empty or
// 0.
type Identity struct {
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	PID      int64  `json:"pid,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
}

// Process identifies the process that holds a lock, in addition to its host name and process id, so that a witness can
// prove its end. A client writes what it can find out; the rest is empty or 0.
type Process struct {
	// BootID identifies the current boot of the machine: /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id,omitempty"`
	// Start is when the process started, in clock ticks since boot: /proc/PID/stat, field 22. It is 0 if the end of the
	// process is not the end of its work: then there is SupervisorStart instead, or none.
	Start int64 `json:"process_start,omitempty"`
	// PIDNamespace is the namespace of its process id: the inode of /proc/PID/ns/pid.
	PIDNamespace int64 `json:"pid_namespace,omitempty"`
	// SupervisorStart is the same for a process whose commands, in the cgroup CgroupID, do the work. Because of its own
	// name, readers that do not know CgroupID see no proof in the end of the process.
	SupervisorStart int64 `json:"supervisor_start,omitempty"`
	// CgroupID is the cgroup in which the process runs its commands, whose end, not its own, ends the work: the inode
	// of the directory in the cgroup v2 file system.
	CgroupID int64 `json:"cgroup_id,omitempty"`

	// In Kubernetes, from the downward API.
	PodNamespace string `json:"pod_namespace,omitempty"`
	PodName      string `json:"pod_name,omitempty"`
	PodUID       string `json:"pod_uid,omitempty"`
	Container    string `json:"container,omitempty"`

	// Detached means that the work outlives the process, as with a reservation: its end proves nothing.
	Detached bool `json:"detached,omitempty"`
}

// Alive is the holder's last alive call.
type Alive struct {
	At       time.Time
	Progress string
	Revision int64 // mod revision of the key
}

// Seen says when a reader saw a record, on the reader's monotonic clock: the time since the reader started. Package
// staleness judges with it the deadlines that other machines' clocks wrote.
type Seen struct {
	First   time.Duration // the hold appeared
	Changed time.Duration // a deadline, locked_at or the time of alive last changed; First if none did
	// Arrived is when a watch reported the write of [Record.DeadlinesWrittenAt]; 0 if a list did, which may be any time
	// later.
	Arrived time.Duration
	// Followed is since when, as of Arrived, the reader had been hearing from etcd without interruption. What arrives
	// soon after an interruption may have been delayed by it.
	Followed time.Duration
}

// DeadlinesWrittenAt returns when the holder, by its own clock, last wrote how long it wants the lock: the time of
// alive, or else locked_at. It is zero if the record has neither, or neither is before its auto_unlock_at.
func (r *Record) DeadlinesWrittenAt() time.Time {
	if r.Alive != nil && !r.Alive.At.IsZero() && r.Alive.At.Before(r.AutoUnlockAt) {
		return r.Alive.At
	}
	if r.LockedAt.Before(r.AutoUnlockAt) {
		return r.LockedAt
	}
	return time.Time{}
}

// FullRecord is a record with the fields that are too large to keep for all locks.
type FullRecord struct {
	Record
	Backtrace string  // newest frame first, one frame a line
	Client    string  // library and version that wrote the record
	Fields    []Field // as stored, sorted by name
}

// ProblemKind says what kind of problem it is. Its values are labels of a metric.
type ProblemKind string

// What can be wrong with a record.
const (
	ProblemMissing       ProblemKind = "missing"        // a key that the protocol acts on does not exist
	ProblemBadTime       ProblemKind = "bad_time"       // a time that cannot be read
	ProblemBadValue      ProblemKind = "bad_value"      // not UTF-8, not a number, not JSON
	ProblemTooLarge      ProblemKind = "too_large"      // over a limit; the shown value is cut
	ProblemLeftover      ProblemKind = "leftover"       // a key that an earlier hold left behind; not read
	ProblemBadName       ProblemKind = "bad_name"       // a lock name that CheckName refuses
	ProblemUnknownLayout ProblemKind = "unknown_layout" // a key below the prefix that fits no layout
)

// Problem is something wrong with a record.
type Problem struct {
	Field string // the field or member; for a foreign key the whole key; "name" for the lock's name
	Kind  ProblemKind
	Text  string // a sentence; may quote bytes of the record: escape it
}

// String returns a text such as `alert_at: "soon" is not a time`.
func (p Problem) String() string { return p.Field + ": " + p.Text }

// Limits in bytes. A lock whose name is longer cannot be taken; longer texts are cut when a record is read.
const (
	MaxNameBytes = 256
	MaxTextBytes = 1 << 10
)

// CheckName returns an error unless name is a lock name: 1 to 256 bytes of valid UTF-8 without control characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the lock name is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the lock name has %d bytes, at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return errors.New("the lock name is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the lock name contains a control character")
	}
	return nil
}

// IsUUID reports whether s is a UUID in the protocol's form: 36 characters, with lower-case hexadecimal digits.
func IsUUID(s string) bool {
	return len(s) == 36 && s == strings.ToLower(s) && uuid.Validate(s) == nil
}
