package mutex

import (
	"errors"
	"fmt"
	"time"

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

// HeldError says that another holds the lock or is ahead in the queue. Its text is one line for people: who, where,
// since when, what for, and when the alert and the auto-unlock are due. It is an [ErrHeld].
type HeldError struct {
	Lock string
	// as it was At; whatever the holder's client wrote, so escape it. Its Token is 0 when the lock was free
	Holder metadata.Document
	At     time.Time // wall clock of this process

	// Position is the caller's place in the queue when it gave up, 1 for the next one. From TryLock of a free lock for
	// which others queue it is the place it would have had. 0 if unknown.
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
		line += fmt.Sprintf("; place %d in the queue", e.Position)
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
