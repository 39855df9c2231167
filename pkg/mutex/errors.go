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

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var (
	// ErrHeld is what errors.Is finds in every [*HeldError]: the lock is held, or others queue for it.
	ErrHeld = errors.New("held by another")

	// ErrNotHeld is what errors.Is finds in every error that says that the caller no longer holds the lock.
	ErrNotHeld = errors.New("not held any more")

	// ErrUnlocked is the cause with which a handle's context ends when its holder unlocks. It is an ErrNotHeld.
	ErrUnlocked = fmt.Errorf("unlocked by its holder: %w", ErrNotHeld)

	// ErrDetached is the cause with which a handle's context ends when its holder gives up the handle but not the hold.
	// It is an [ErrNotHeld].
	ErrDetached = fmt.Errorf("the handle was detached from its hold: %w", ErrNotHeld)

	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("the lock client is closed")
)

// ErrCondition is what errors.Is finds when nothing was done because a compare of [If] did not hold.
var ErrCondition = errors.New("a condition does not hold")

// ErrUnknown says that etcd did not answer in time: what was asked for with the caller's own writes may have been done,
// or not. The caller finds out by its keys. What was taken is given back in the background.
var ErrUnknown = errors.New("it is not known whether it was done")

// HeldError says that another holds the lock or is ahead in the queue. Its text is one line for people: who, where,
// since when, what for, and when the alert and the auto-unlock are due. It is an [ErrHeld].
type HeldError struct {
	Lock string
	// as it was At; whatever the holder's client wrote, so escape it. Its Token is 0 when the lock was free
	Holder metadata.Document
	At     time.Time // wall clock of this process

	// Position is the caller's position in the queue when it gave up; 1 is next. From TryLock of a free lock for which
	// others queue, it is the position that the caller would have had. 0 if unknown.
	Position int

	// Of a lock that several can hold: Kind is what the caller asked for, one of metadata.HoldsPermits, HoldsShared and
	// HoldsExclusive, empty for a plain lock. Holders are all of them, the oldest first; Holder is the first of them.
	// Of a semaphore, Free of Limit permits were free and Weight were asked for.
	Kind                string
	Holders             []metadata.Document
	Free, Limit, Weight int

	// Where is the file and line that took the hold of Holder, if this process did.
	Where string

	// Err is why the caller stopped waiting, usually an error of its context; nil from TryLock, which never waits.
	Err error
}

// Error is the line.
func (e *HeldError) Error() string {
	line := fmt.Sprintf("lock %q is held by %s", e.Lock, describe(&e.Holder.Record, e.At))
	switch {
	case e.Kind != "":
		line = e.sharing()
	case e.Holder.Token == 0:
		line = fmt.Sprintf("lock %q is free, but others queue for it", e.Lock)
	}
	if e.Where != "" && e.Kind == "" {
		line += "; this very process took it at " + e.Where
	}
	if e.Position > 0 {
		line += fmt.Sprintf("; position %d in the queue", e.Position)
	}
	if e.Err != nil {
		return fmt.Sprintf("%v: %s", e.Err, line)
	}
	return line
}

// Is makes every HeldError an [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap is why the caller stopped waiting.
func (e *HeldError) Unwrap() error { return e.Err }

// fewHolders is how many of many holders are named in a line.
const fewHolders = 3

// sharing is one line: why a lock that several can hold has no room, or who is ahead.
func (e *HeldError) sharing() string {
	line := fmt.Sprintf("lock %q is %s by ", e.Lock, e.manner())
	queue := ", but others queue for it"
	room := len(e.Holders) == 0 || e.Kind == metadata.HoldsShared && e.manner() == "read"
	if e.Kind == metadata.HoldsPermits {
		free := fmt.Sprintf("semaphore %q: %d of %s free", e.Lock, e.Free, plural(e.Limit, "permit"))
		line = fmt.Sprintf("%s, %d wanted; held by ", free, e.Weight)
		queue = ""
		if room = e.Free >= e.Weight; room {
			return free + ", but others queue for them"
		}
	}
	switch {
	case len(e.Holders) == 0:
		return fmt.Sprintf("lock %q is free%s", e.Lock, queue)
	case len(e.Holders) == 1:
		line += describe(&e.Holders[0].Record, e.At)
	default:
		line += e.several()
	}
	if room {
		return line + queue
	}
	return line
}

// manner is how the lock is held.
func (e *HeldError) manner() string {
	if len(e.Holders) > 0 && e.Holders[0].Attributes[metadata.AttributeKind] == metadata.HoldsShared {
		return "read"
	}
	return "held"
}

// several names a few of the holders, and says when the next of them is auto-unlocked.
func (e *HeldError) several() string {
	var named []string
	for i := range min(len(e.Holders), fewHolders) {
		named = append(named, describeHolder(&e.Holders[i].Record, e.At))
	}
	if more := len(e.Holders) - fewHolders; more > 0 {
		named = append(named, plural(more, "other"))
	}
	var next time.Time
	for i := range e.Holders {
		if at := e.Holders[i].AutoUnlockAt; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	line := strings.Join(named[:len(named)-1], ", ") + " and " + named[len(named)-1]
	return line + "; " + due(next, e.At, "the first of them is auto-unlocked",
		"the auto-unlock of the first of them was due",
		"none of them has a readable time of auto-unlock")
}

// LostError says that a hold ended without its holder's Unlock, or that it may have.
type LostError struct {
	Lock  string
	UUID  string
	Token int64 // 0 from [Client.Adopt], which found no such hold

	// Certain reports that the hold is over. Otherwise its time ran out on this machine's clock before etcd confirmed
	// an extension: it may still stand, but must not be relied on.
	Certain bool

	Ending *metadata.Ending   // who ended it and why; nil when nobody left a note
	Holder *metadata.Document // who holds the lock now; nil when nobody does or when it is not known
	At     time.Time          // when this process learned of it, wall clock
}

// Error is one line that says who ended the hold and why, as far as that is known.
func (e *LostError) Error() string {
	switch {
	case e.Token == 0 && e.Certain:
		return e.notFound()
	case !e.Certain:
		return fmt.Sprintf("lock %q may be lost: its time ran out before etcd confirmed an extension", e.Lock)
	case e.Ending != nil:
		return fmt.Sprintf("lock %q was lost: %s", e.Lock, describeEnding(e.Ending, e.At))
	case e.Holder != nil:
		return fmt.Sprintf("lock %q was lost: it is held by %s", e.Lock, describe(&e.Holder.Record, e.At))
	}
	return fmt.Sprintf("lock %q was lost: its record is gone, and whoever removed it left no note", e.Lock)
}

// notFound is the line about a hold that could not be adopted.
func (e *LostError) notFound() string {
	line := fmt.Sprintf("lock %q is not held as %s", e.Lock, plain(e.UUID))
	if e.Ending != nil {
		line += ": that hold was " + describeEnding(e.Ending, e.At)
	}
	if e.Holder != nil {
		return line + "; it is held by " + describe(&e.Holder.Record, e.At)
	}
	return line + "; nobody holds it"
}

// Is makes every LostError an [ErrNotHeld].
func (e *LostError) Is(target error) bool { return target == ErrNotHeld }

// AlreadyHeldError says that the caller would wait for itself: its context was made under a hold of the lock that it
// asks for. With [Reentrant] it would enter that hold again.
type AlreadyHeldError struct {
	Lock  string
	Where string    // file and line of the call that took it
	Since time.Time // wall clock
	At    time.Time // of this error, wall clock
}

// Error is one line.
func (e *AlreadyHeldError) Error() string {
	return fmt.Sprintf("lock %q is already held by you at %s, taken %s", e.Lock, e.Where,
		text.RelativeWords(e.Since, e.At))
}

// ConditionError says that nothing was done because compares of the caller's did not hold.
type ConditionError struct {
	Lock   string
	Failed []FailedCondition
	Holder *metadata.Document // who held the lock at the same time; nil when nobody did
	At     time.Time          // wall clock of this process
}

// FailedCondition is a compare that did not hold, and what etcd had then.
type FailedCondition struct {
	Compare clientv3.Cmp
	Keys    []*mvccpb.KeyValue // of the key, or the first ones of the range; empty when there was none
}

// Error is one line that says what stood in the way.
func (e *ConditionError) Error() string {
	facts := make([]string, len(e.Failed))
	for i, f := range e.Failed {
		facts[i] = f.String()
	}
	return fmt.Sprintf("lock %q: %v: %s", e.Lock, ErrCondition, strings.Join(facts, "; "))
}

// Is makes every ConditionError an [ErrCondition].
func (e *ConditionError) Is(target error) bool { return target == ErrCondition }

// String says what the key had.
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

// errNoHold is what a handle of no hold says.
var errNoHold error = noHold{}

type noHold struct{}

func (noHold) Error() string {
	return "no lock is held here: the context is neither that of Do nor that of a lock"
}

func (noHold) Is(target error) bool { return target == ErrNotHeld }

// ended is why ctx ended.
func ended(ctx context.Context) error { return etcdretry.Ended(ctx, ErrClosed) }
