package locks

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Row is one lock in the snapshot: the model of which the list, the lock page and the JSON API show parts. It is
// immutable.
type Row struct {
	*metadata.Record
	*WaitSummary // never nil
	staleness.Judgement
	Leased      *Leased // a lock of another library; nil for one of ours
	Display     metadata.State
	validUntil  time.Time // when Display or Class changes if nobody touches the record; zero = never
	Fingerprint uint64    // changes with anything that a list shows

	Acknowledged *metadata.Acknowledgement // who looks at it now; nil = nobody

	Class Class // of the hold alone: not ClassDeadlock

	// Inconsistent says, as a predicate, what no client leaves of the lock, such as "has 4 of 3 permits out"; or empty.
	Inconsistent string
}

// NewRow judges a record at a moment, with the policy of the unlockers. waiting must not be nil.
func NewRow(record *metadata.Record, policy *diagnosis.CombinedPolicy, at staleness.Moment, waiting *WaitSummary,
	inconsistent string) *Row {
	r := &Row{Record: record, WaitSummary: waiting, Judgement: staleness.Judge(record, policy.Policy, at),
		Acknowledged: record.ValidAcknowledgement(at.Wall), Inconsistent: inconsistent}
	r.Display = r.State
	r.Class = r.ClassAt(policy, at.Wall)
	r.validUntil = protocol.Earlier(r.Next, r.NextClassChange(policy, at.Wall))
	switch soon := r.ExpiringAt(record); {
	case soon.IsZero():
	case at.Wall.Before(soon):
		r.validUntil = protocol.Earlier(r.validUntil, soon)
	default:
		r.Display = metadata.StateExpiring
		if policy.MayRemove(r.Name) {
			r.Class = ClassLeaving
		}
	}
	beside := int64(0) // of what is not part of the record
	for _, s := range []*metadata.Statement{r.Death, r.Suspicion} {
		if s != nil {
			beside += s.Revision
		}
	}
	if r.Acknowledged != nil {
		beside += r.Acknowledged.Revision
		r.validUntil = protocol.Earlier(r.validUntil, r.Acknowledged.Until.Time)
	}
	// Most of the record is in its revision, except that a key was deleted.
	if r.Alive != nil {
		beside += r.Alive.Revision
	}
	if r.FinishRequest != nil {
		beside += r.FinishRequest.Revision
	}
	if r.MoreTime != nil {
		beside++
	}
	texts := strings.Join([]string{r.Name, r.Owner, r.Hostname, r.Purpose}, "\x00")
	r.Fingerprint = Hash(xxhash.Sum64String(texts), uint64(r.Revision), uint64(r.Token), uint64(r.Display.Urgency()),
		uint64(r.Waiters), uint64(r.Longest.UnixNano()), uint64(r.Class), uint64(beside),
		uint64(r.ClockOff/time.Minute), uint64(r.PID), uint64(r.LockedAt.UnixNano()), uint64(len(r.Attributes)))
	for _, p := range r.Problems { // those of foreign keys are not part of the record, either
		r.Fingerprint = Hash(r.Fingerprint, xxhash.Sum64String(p.String()))
	}
	return r
}

// isValidAt reports whether judging the record again at a later moment yields the same row.
func (r *Row) isValidAt(record *metadata.Record, waiting *WaitSummary, inconsistent string, at time.Time) bool {
	return r.Record == record && *r.WaitSummary == *waiting && r.Inconsistent == inconsistent &&
		(r.validUntil.IsZero() || at.Before(r.validUntil))
}

// attentionSince returns since when the lock has needed a person: when it began to alert, its holder ended or it
// expired; zero for one that does not.
func (r *Row) attentionSince() time.Time {
	switch r.State {
	case metadata.StateAlerting, metadata.StateExpired:
		return r.LateSince()
	case metadata.StateAbandoned:
		return protocol.Earlier(protocol.EndedAt(r.Death), r.DueAlert)
	}
	return time.Time{}
}

// Hash joins values to a hash. It is the same in every replica.
func Hash(h uint64, values ...uint64) uint64 {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 128), h)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return xxhash.Sum64(b)
}

// HostPID returns the text for a process: its host and, if known, its process id.
func HostPID(host string, pid int64) string {
	if pid == 0 {
		return host
	}
	return host + ":" + strconv.FormatInt(pid, 10)
}

// HoldID identifies the hold of the lock in a few bytes. It is the same in every replica.
func (r *Row) HoldID() string {
	return strconv.FormatUint(Hash(xxhash.Sum64String(r.Name), xxhash.Sum64String(r.UUID), uint64(r.Token)), 36)
}

// isAlive reports whether the holder was alive recently, by its own clock, and is not proven to have ended since.
func (r *Row) isAlive(now time.Time) bool {
	at := r.LastAlive()
	return !r.ProvenDead() && !at.IsZero() && now.Sub(at) < recentlyAlive
}

// LastAlive returns when the holder last called alive, or else took the lock; zero = unknown.
func (r *Row) LastAlive() time.Time {
	if r.Alive != nil && r.Alive.At.After(r.LockedAt) {
		return r.Alive.At
	}
	return r.LockedAt
}
