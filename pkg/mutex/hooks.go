package mutex

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Hooks observe the locks of a client: for metrics, traces and tests. Packages mutexmetrics, mutexotel and mutexlog
// have some.
//
// A hook runs in the goroutine of the call it observes, with no mutex of this package held, so it may use the client.
// FinishRequested, MoreTimeGiven, Lost, and ExtendEnded of a heartbeat run in goroutines of the client. Hooks of one
// client may run concurrently. They must not panic: nothing recovers it, and no caller would have the handle.
type Hooks struct {
	// Acquiring is called when a Lock or Do begins, before the first request. A wait that never ends is never reported
	// by AcquireEnded.
	Acquiring func(Acquiring)

	// AcquireEnded is called at the end of each Lock, TryLock and Do. It is not called for bad arguments, for
	// [Client.Adopt], or for holds that are entered again, see [Reentrant].
	AcquireEnded func(AcquireEnded)

	ExtendEnded     func(ExtendEnded)     // after each Alive and each heartbeat
	FinishRequested func(FinishRequested) // for each request to finish, see [Lock.FinishRequested]
	MoreTimeGiven   func(MoreTimeGiven)   // when the holder was given more time, see [Lock.MoreTime]

	// Lost is called when a handle ends without its holder's doing, and ReleaseEnded after each Unlock that releases a
	// hold, or discovers that it is gone. For each handle that ends one of the two is called, except after
	// [Lock.Detach] and [Client.Close].
	Lost         func(Lost)
	ReleaseEnded func(ReleaseEnded)
}

// Result is the outcome of a call, as one of a few words: it suits a metric label.
type Result string

// The outcomes of all calls.
const (
	ResultAcquired Result = "acquired"
	ResultHeld     Result = "held"     // another client holds it or is ahead in the queue, and the call does not wait
	ResultGaveUp   Result = "gave_up"  // the caller's context ended, or the client was closed
	ResultRefused  Result = "refused"  // one of the caller's conditions did not hold
	ResultExtended Result = "extended" // etcd confirmed the hold
	ResultReleased Result = "released" // it was held until now and is free
	ResultLost     Result = "lost"     // it had been lost before
	ResultError    Result = "error"    // etcd did not answer in time or refused
)

// Acquiring reports that a Lock or Do has begun.
type Acquiring struct {
	Name    string          // of the lock, as the caller gave it
	Context context.Context // the caller's, but it also ends with the call
}

// AcquireEnded reports that a Lock, TryLock or Do has got the lock, or has ended without it.
type AcquireEnded struct {
	Name     string          // of the lock, as the caller gave it
	Context  context.Context // the caller's, which may have ended; for values such as a trace span
	Result   Result
	WaitTime time.Duration // from the call until its end; without a rival, the round trip to etcd
	Lock     *Lock         // nil unless acquired
	Err      error         // nil if acquired
}

// ExtendEnded reports that an Alive or a heartbeat has extended the hold, or has failed to.
type ExtendEnded struct {
	Lock      *Lock
	Result    Result        // extended, lost or error
	Heartbeat bool          // by a heartbeat, not by Alive
	Duration  time.Duration // of the call
	Err       error         // nil if extended
}

// FinishRequested reports that the holder of a lock was asked to finish.
type FinishRequested struct {
	Lock    *Lock
	Request metadata.FinishRequest // its texts are whatever its writer wrote: escape them
}

// MoreTimeGiven reports that an operator gave the holder of a lock more time.
type MoreTimeGiven struct {
	Lock     *Lock             // its Deadline is the new one
	MoreTime metadata.MoreTime // its texts are whatever its writer wrote: escape them
}

// LostReason says why a hold was lost, in one of a few words: it suits a metric label.
type LostReason string

// Why a hold can be lost.
const (
	LostReasonForced       LostReason = metadata.EndingForced       // a person removed it
	LostReasonAutoUnlocked LostReason = metadata.EndingAutoUnlocked // an unlocker did: it was not extended in time
	LostReasonAbandoned    LostReason = metadata.EndingAbandoned    // an unlocker did: its holder was proven dead
	LostReasonRemoved      LostReason = "removed"                   // it was removed and no ending was recorded
	LostReasonTime         LostReason = "time"                      // its time ran out unconfirmed: it may still stand
)

// Lost reports that a hold was lost: it ended, or may have ended, without its holder's Unlock.
type Lost struct {
	Lock     *Lock
	Reason   LostReason
	HoldTime time.Duration // since the acquisition was sent
	Err      *LostError
}

// ReleaseEnded reports that an Unlock has returned.
type ReleaseEnded struct {
	Lock     *Lock
	Result   Result        // released, lost, or error: then the release goes on in the background
	HoldTime time.Duration // since the acquisition was sent, or since the hold was adopted
	Err      error
}

// And returns hooks that call h and then others.
func (h Hooks) And(others Hooks) Hooks {
	return Hooks{
		Acquiring:       both(h.Acquiring, others.Acquiring),
		AcquireEnded:    both(h.AcquireEnded, others.AcquireEnded),
		ExtendEnded:     both(h.ExtendEnded, others.ExtendEnded),
		FinishRequested: both(h.FinishRequested, others.FinishRequested),
		MoreTimeGiven:   both(h.MoreTimeGiven, others.MoreTimeGiven),
		Lost:            both(h.Lost, others.Lost),
		ReleaseEnded:    both(h.ReleaseEnded, others.ReleaseEnded),
	}
}

func notify[E any](hook func(E), e E) {
	if hook != nil {
		hook(e)
	}
}

func both[E any](f, g func(E)) func(E) {
	return func(e E) { notify(f, e); notify(g, e) }
}

// Reason returns why the hold was lost.
func (e *LostError) Reason() LostReason {
	switch {
	case !e.Certain:
		return LostReasonTime
	case e.Ending == nil:
		return LostReasonRemoved
	case e.Ending.Cause == metadata.EndingAutoUnlocked, e.Ending.Cause == metadata.EndingAbandoned:
		return LostReason(e.Ending.Cause)
	}
	return LostReasonForced
}
