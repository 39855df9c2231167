package mutex

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var (
	// ErrHeld matches every [*HeldError]: the lock is held, or other clients queue for it.
	ErrHeld = errors.New("held by another")

	// ErrNotHeld matches every error that means that the caller no longer holds the lock.
	ErrNotHeld = errors.New("no longer held")

	// ErrUnlocked is the cause with which a handle's context ends when its holder unlocks. It is an [ErrNotHeld].
	ErrUnlocked = fmt.Errorf("unlocked by its holder: %w", ErrNotHeld)

	// ErrDetached is the cause with which a handle's context ends when [Lock.Detach] gives up the handle but not the
	// hold. It is an [ErrNotHeld].
	ErrDetached = fmt.Errorf("the handle was detached from its hold: %w", ErrNotHeld)

	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("the lock client is closed")
)

// ErrCondition matches every [*ConditionError]: nothing was done, because one of the caller's compares did not hold.
var ErrCondition = errors.New("a condition does not hold")

// HeldError means that another client holds the lock or is ahead in the queue, or that a lock delay keeps it free. Its
// text says who holds it, where, since when, what for, and when the alert and the auto-unlock are due. It is an
// [ErrHeld].
type HeldError struct {
	Name string // of the lock that was wanted

	// Holder is the record of the oldest holder as it was At; its Token is 0 when the lock was free. Its text is
	// whatever the holder's client wrote: escape it.
	Holder metadata.FullRecord
	At     time.Time // wall clock of this process

	// Position is the caller's position in the queue when it gave up; 1 is next. From TryLock of a free lock that
	// others queue for, it is the position that the caller would have had. 0 if unknown, or if more than a hundred
	// clients queue.
	Position int

	// Kind is the kind of lock that the caller wanted: metadata.KindSemaphore, KindShared or KindExclusive. For a plain
	// lock this group of fields is zero, unless shares of the lock are held: then Kind is KindExclusive. Holders are
	// all holders, the oldest first. Of the Limit permits of a semaphore, Free were free and the caller wanted Weight.
	Kind                string
	Holders             []metadata.FullRecord
	Free, Limit, Weight int

	Delay      *metadata.LockDelay // that keeps others from taking the lock, the last to end; nil if there is none
	NoUnlocker bool                // the auto-unlock of a holder was due, but no unlocker is running
	CallSite   string              // file and line that took the hold of Holder, if this process did
	Err        error               // why the caller stopped waiting; nil from TryLock
}

func (e *HeldError) Error() string {
	line := e.state()
	if e.Delay != nil {
		line += "; " + protocol.DescribeDelay(e.Delay, e.At)
	}
	if due := earliestAutoUnlock(e.Holders, e.Holder); e.NoUnlocker && !due.After(e.At) {
		line += "; no unlocker is running, so nothing removes it"
	}
	if e.CallSite != "" && e.Kind == "" {
		line += "; this very process took it at " + e.CallSite
	}
	if e.Position > 0 {
		line += fmt.Sprintf("; position %d in the queue", e.Position)
	}
	if e.Err != nil {
		return fmt.Sprintf("%v: %s", e.Err, line)
	}
	return line
}

func (e *HeldError) Is(target error) bool { return target == ErrHeld }

func (e *HeldError) Unwrap() error { return e.Err }

// maxNamedHolders is how many holders a line names.
const maxNamedHolders = 3

// state returns who holds the lock, or that others are ahead.
func (e *HeldError) state() string {
	holders := e.Holders
	if e.Kind == "" && e.Holder.Token != 0 {
		holders = []metadata.FullRecord{e.Holder}
	}
	manner := "held"
	if len(holders) > 0 && holders[0].Attributes[metadata.AttributeKind] == metadata.KindShared {
		manner = "read"
	}
	line := fmt.Sprintf("lock %q is %s by ", e.Name, manner)
	if e.Kind == metadata.KindSemaphore {
		free := fmt.Sprintf("semaphore %q: %d of %s free", e.Name, e.Free, text.Count(e.Limit, "permit"))
		if e.Free >= e.Weight {
			return free + ", but others queue for them"
		}
		line = fmt.Sprintf("%s, %d wanted; held by ", free, e.Weight)
	}
	switch {
	case len(holders) == 0 && e.Delay != nil:
		return fmt.Sprintf("nobody holds lock %q", e.Name)
	case len(holders) == 0:
		return fmt.Sprintf("lock %q is free, but others queue for it", e.Name)
	case len(holders) == 1:
		line += describe(&holders[0].Record, e.At)
	default:
		line += describeSeveral(holders, e.At)
	}
	if e.Kind == metadata.KindShared && manner == "read" {
		return line + ", but others queue for it"
	}
	return line
}

func describeSeveral(holders []metadata.FullRecord, now time.Time) string {
	var named []string
	for i := range min(len(holders), maxNamedHolders) {
		named = append(named, describeHolder(&holders[i].Record, now))
	}
	if more := len(holders) - maxNamedHolders; more > 0 {
		named = append(named, text.Count(more, "other"))
	}
	line := strings.Join(named[:len(named)-1], ", ") + " and " + named[len(named)-1]
	return line + "; " + due(earliestAutoUnlock(holders), now, "the first of them is auto-unlocked",
		"the auto-unlock of the first of them was due", "none of them has a readable time of auto-unlock")
}

// LostError means that a hold ended without its holder's Unlock, or may have.
type LostError struct {
	Name  string // of the lock
	UUID  string // of the hold
	Token int64  // 0 if [Client.Adopt] found no such hold

	// Certain reports that the hold is over. Otherwise its time ran out on this machine's clock before etcd confirmed
	// an extension: the hold may still stand, but must not be relied on.
	Certain bool

	Ending *metadata.Ending     // who ended it and why; nil if no ending was recorded
	Holder *metadata.FullRecord // who holds the lock now; nil if nobody does or it is unknown
	At     time.Time            // when this process learned of it, wall clock

	unread      error         // why Ending and Holder could not be read
	maximumHold time.Duration // of the heartbeat, if it is over; else 0
}

func (e *LostError) Error() string {
	switch {
	case e.Token == 0 && e.Certain:
		return e.notFound()
	case e.maximumHold > 0:
		return fmt.Sprintf("lock %q may be lost: its maximum hold of %s is over", e.Name,
			text.DurationWords(e.maximumHold))
	case !e.Certain:
		return fmt.Sprintf("lock %q may be lost: its time ran out before etcd confirmed an extension", e.Name)
	case e.Ending != nil:
		return fmt.Sprintf("lock %q was lost: %s", e.Name, describeEnding(e.Ending, e.At))
	case e.Holder != nil:
		return fmt.Sprintf("lock %q was lost: it is held by %s", e.Name, describe(&e.Holder.Record, e.At))
	case e.unread != nil:
		return fmt.Sprintf("lock %q was lost: its record is gone; etcd did not say in time who removed it", e.Name)
	}
	return fmt.Sprintf("lock %q was lost: its record is gone, and whoever removed it left no note", e.Name)
}

// notFound returns the line about a hold that could not be adopted.
func (e *LostError) notFound() string {
	line := fmt.Sprintf("lock %q is not held as %s", e.Name, plain(e.UUID))
	if e.Ending != nil {
		line += ": that hold was " + describeEnding(e.Ending, e.At)
	}
	if e.Holder != nil {
		return line + "; it is held by " + describe(&e.Holder.Record, e.At)
	}
	return line + "; nobody holds it"
}

func (e *LostError) Is(target error) bool { return target == ErrNotHeld }

// AlreadyHeldError means that the caller would wait for itself: its context was made under a hold of the lock that it
// wants. With [Reentrant] the call would enter that hold again.
type AlreadyHeldError struct {
	Name     string    // of the lock
	CallSite string    // file and line of the call that took it
	Since    time.Time // wall clock
	At       time.Time // of this error, wall clock
}

func (e *AlreadyHeldError) Error() string {
	return fmt.Sprintf("lock %q is already held by you at %s, taken %s", e.Name, e.CallSite,
		text.RelativeWords(e.Since, e.At))
}

// ConditionError means that nothing was done, because some of the caller's compares did not hold. It is an
// [ErrCondition].
type ConditionError struct {
	Name   string // of the lock
	Failed []FailedCondition
	Holder *metadata.FullRecord // who held the lock at the same time; nil if nobody did
	At     time.Time            // wall clock of this process
}

// FailedCondition is a compare that did not hold, with the keys that etcd had then.
type FailedCondition struct {
	Compare clientv3.Cmp
	Keys    []*mvccpb.KeyValue // the key, or the first keys of the range; empty if there was none
}

func (e *ConditionError) Error() string {
	facts := make([]string, len(e.Failed))
	for i, f := range e.Failed {
		facts[i] = f.String()
	}
	return fmt.Sprintf("lock %q: %v: %s", e.Name, ErrCondition, strings.Join(facts, "; "))
}

func (e *ConditionError) Is(target error) bool { return target == ErrCondition }

func (f FailedCondition) String() string {
	switch len(f.Keys) {
	case 0:
		return fmt.Sprintf("there is no key %s", strconv.Quote(clip(string(f.Compare.KeyBytes()))))
	case 1:
		kv := f.Keys[0]
		return fmt.Sprintf("key %s is %s since revision %d", strconv.Quote(clip(string(kv.Key))),
			strconv.Quote(clip(string(kv.Value))), kv.ModRevision)
	}
	return fmt.Sprintf("there are keys from %s on", strconv.Quote(clip(string(f.Keys[0].Key))))
}

// errNoHold is the error of a handle without a hold.
var errNoHold error = noHold{}

type noHold struct{}

func (noHold) Error() string {
	return "no lock is held here: the context comes neither from Do nor from a lock"
}

func (noHold) Is(target error) bool { return target == ErrNotHeld }

func contextError(ctx context.Context) error { return etcdretry.ContextError(ctx, ErrClosed) }

// FinishRequestError means that work ended early because the holder was asked to finish. Its text is made harmless.
type FinishRequestError struct {
	Name    string // of the lock
	Request metadata.FinishRequest
	At      time.Time // when the work ended, wall clock
}

func (e *FinishRequestError) Error() string {
	by := describeRequest(&e.Request, e.At)
	return fmt.Sprintf("the holder of lock %q was asked to finish by %s", clip(e.Name), by)
}
