package lockrecord

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Removal is a request to end a hold, with the ending to record.
type Removal struct {
	Record *metadata.Record
	Ending metadata.Ending
	// Delay is how long no client may take the lock afterwards, in whole seconds; 0 = no delay. See
	// [metadata.Record.EffectiveLockDelay].
	Delay time.Duration
	// IfUnchanged spares a hold whose record was written after [metadata.Record.Revision].
	IfUnchanged bool
}

// ReleaseEnding returns the ending of a hold that its holder released: yielded, if it was asked to finish.
func ReleaseEnding(r *metadata.Record, at time.Time) metadata.Ending {
	if r.FinishRequest == nil {
		return NewEnding(r, metadata.EndingReleased, "", "", at)
	}
	return NewEnding(r, metadata.EndingYielded, "", "asked by "+r.FinishRequest.By+": "+r.FinishRequest.Reason, at)
}

// NewEnding returns the ending of the hold in r. by is an unlocker's id or an operator, reason a sentence.
func NewEnding(r *metadata.Record, cause, by, reason string, at time.Time) metadata.Ending {
	e := metadata.Ending{
		Name:            r.Name,
		UUID:            r.UUID,
		Token:           r.Token,
		Identity:        r.Identity,
		LockedAt:        metadata.Time{Time: r.LockedAt},
		SeenAt:          r.SeenAt,
		AlertAt:         metadata.Time{Time: r.AlertAt},
		AutoUnlockAt:    metadata.Time{Time: r.AutoUnlockAt},
		Attributes:      r.Attributes,
		EndedAt:         metadata.Time{Time: at},
		Cause:           cause,
		By:              by,
		Reason:          reason,
		FinishRequest:   r.FinishRequest,
		MoreTime:        r.MoreTime,
		Acknowledgement: r.ValidAcknowledgement(at),
	}
	if r.Alive != nil {
		e.AliveAt, e.Progress = metadata.Time{Time: r.Alive.At}, r.Alive.Progress
	}
	return e
}

// NewDelay returns the lock delay that follows a removal, as its key has it.
func NewDelay(r Removal) metadata.LockDelay {
	d := metadata.LockDelay{
		Name: r.Record.Name, UUID: r.Record.UUID, Token: r.Record.Token, Owner: r.Record.Owner,
		Hostname: r.Record.Hostname, Purpose: r.Record.Purpose, Cause: r.Ending.Cause, By: r.Ending.By,
		At: r.Ending.EndedAt, Seconds: int64(wholeSeconds(r.Delay) / time.Second),
	}
	if s := r.Record.Share(); s.Kind == metadata.KindSemaphore {
		d.Permits = s.Permits
	}
	return d
}

// delaySeconds returns the value of the lock_delay member.
func delaySeconds(d time.Duration) int64 { return int64(wholeSeconds(max(d, 0)) / time.Second) }

func wholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// lockDelay reads the lock_delay member, a whole number of seconds.
func (d *decoder) lockDelay(name, value string) time.Duration {
	before := len(d.record.Problems)
	seconds := d.number(name, value)
	switch limit := int64(metadata.MaxLockDelay / time.Second); {
	case len(d.record.Problems) > before: // unreadable: as if the record had none
		return 0
	case seconds == 0:
		return metadata.NoLockDelay
	case seconds > limit:
		d.problem(name, metadata.ProblemTooLarge, fmt.Sprintf("%d seconds, only %d count", seconds, limit))
		return metadata.MaxLockDelay
	}
	return time.Duration(seconds) * time.Second
}
