package mutex

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Hooks observe the locks of a client: for metrics, traces and tests. A nil hook costs nothing. Package mutexmetrics
// has hooks for Prometheus, mutexotel for OpenTelemetry, mutexlog for logs.
//
// A hook runs in the goroutine of the call it observes, with no mutex of this package held, so it may use the client;
// Lock, Alive and Unlock return after it. Asked, GivenTime, Lost, and Extended of a heartbeat run in goroutines of the
// client. Hooks of one client may run concurrently. Nothing recovers a panic in a hook: it ends the program, or unwinds
// the caller. If Acquired panics, its lock is released, because no caller will ever have the handle.
type Hooks struct {
	// Asking is called when a Lock or Do begins, before the first request. A wait that never ends is never reported by
	// Acquired.
	Asking func(Asking)

	// Acquired is called at the end of each Lock, TryLock and Do. It is not called for bad arguments, for
	// [Client.Adopt], or for holds that are entered again, see [Reentrant].
	Acquired func(Acquired)

	// Extended is called after each Alive and each heartbeat.
	Extended func(Extended)

	// Asked is called when the holder of a lock is asked to finish, and again for each later request; see [Lock.Asked].
	Asked func(Asked)

	// GivenTime is called when the holder of a lock was given more time; see [Lock.Extended].
	GivenTime func(GivenTime)

	// Lost is called when a handle ends without its holder's doing. For each handle that ends, either Lost or Released
	// is called, except after [Lock.Detach] and [Client.Close].
	Lost func(Lost)

	// Released is called after each Unlock that releases a hold, or discovers that it is gone.
	Released func(Released)
}

// Result is how something ended, as a word of a small set: the value of a label.
type Result string

// The results.
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

// AcquireResults returns the results of [Acquired], to start a time series for each.
func AcquireResults() []Result {
	return []Result{ResultAcquired, ResultHeld, ResultGaveUp, ResultRefused, ResultError}
}

// ExtendResults returns the results of [Extended].
func ExtendResults() []Result { return []Result{ResultExtended, ResultLost, ResultError} }

// Asking is a Lock or Do that has begun.
type Asking struct {
	Name    string          // of the lock, as the caller gave it
	Context context.Context // the caller's, but it also ends with the call
}

// Acquired is the end of a wait for a lock.
type Acquired struct {
	Name    string          // of the lock, as the caller gave it
	Context context.Context // the caller's, which may have ended; for values such as a trace span
	Result  Result
	Waited  time.Duration // from the call until its end; without a rival, the round trip to etcd
	Lock    *Lock         // nil unless acquired
	Err     error         // nil if acquired
}

// Extended is an attempt to postpone the alert and the auto-unlock.
type Extended struct {
	Lock      *Lock
	Result    Result
	Heartbeat bool
	Took      time.Duration
	Err       error
}

// Asked is a request to the holder of a lock to finish.
type Asked struct {
	Lock    *Lock
	Request metadata.Request // its texts are whatever its writer wrote: escape them
}

// GivenTime is more time that somebody gave the holder of a lock.
type GivenTime struct {
	Lock      *Lock              // its Deadline is the new one
	Extension metadata.Extension // its texts are whatever its writer wrote: escape them
}

// Reason is why a hold was lost, as a word of a small set.
type Reason string

// The reasons.
const (
	ReasonForced       Reason = metadata.EndedForced       // a person removed it
	ReasonAutoUnlocked Reason = metadata.EndedAutoUnlocked // an unlocker did: it was not extended in time
	ReasonAbandoned    Reason = metadata.EndedAbandoned    // an unlocker did: its holder was proven dead
	ReasonRemoved      Reason = "removed"                  // it was removed and no ending was recorded
	ReasonTime         Reason = "time"                     // its time ran out unconfirmed: it may still stand
)

// LostReasons returns the reasons of [Lost].
func LostReasons() []Reason {
	return []Reason{ReasonForced, ReasonAutoUnlocked, ReasonAbandoned, ReasonRemoved, ReasonTime}
}

// Lost is the end of a handle that its holder did not bring about.
type Lost struct {
	Lock   *Lock
	Reason Reason
	Held   time.Duration // since the acquisition was sent
	Err    *LostError
}

// Released is the end of an Unlock.
type Released struct {
	Lock   *Lock
	Result Result        // released, lost, or error: then the release goes on in the background
	Held   time.Duration // since the acquisition was sent, or since the hold was adopted
	Err    error
}

// And returns hooks that call h and then others.
func (h Hooks) And(others Hooks) Hooks {
	return Hooks{
		Asking: both(h.Asking, others.Asking), Acquired: both(h.Acquired, others.Acquired),
		Extended: both(h.Extended, others.Extended),
		Asked:    both(h.Asked, others.Asked), GivenTime: both(h.GivenTime, others.GivenTime),
		Lost: both(h.Lost, others.Lost), Released: both(h.Released, others.Released),
	}
}

func both[E any](f, g func(E)) func(E) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(e E) { f(e); g(e) }
}

// Reason returns why the hold was lost, in a word.
func (e *LostError) Reason() Reason {
	switch {
	case !e.Certain:
		return ReasonTime
	case e.Ending == nil:
		return ReasonRemoved
	case e.Ending.Ended == metadata.EndedAutoUnlocked:
		return ReasonAutoUnlocked
	case e.Ending.Ended == metadata.EndedAbandoned:
		return ReasonAbandoned
	}
	return ReasonForced
}
