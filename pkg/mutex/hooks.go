package mutex

import (
	"context"
	"errors"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Hooks observe the locks of a client: for metrics, traces and tests. Each may be nil, and costs nothing then. Package
// mutexmetrics has some that feed Prometheus.
//
// A hook is called in the goroutine of the call it observes, with no lock of this package held, so it may use the
// client; Lock, Alive and Unlock return after it. Lost, and Extended of a heartbeat, come from goroutines of the
// client. Hooks of one client may run at the same time. Nothing recovers from a panic in a hook: it ends the program,
// or unwinds the caller. If Acquired panics its lock is given back, because nobody will ever have the handle.
type Hooks struct {
	// Asking is called when a Lock or Do begins, before etcd is asked. A hook at the end only would never report a wait
	// without end.
	Asking func(Asking)

	// Acquired is called at the end of each Lock, TryLock and Do. It is not called for bad arguments, for
	// [Client.Adopt], or for holds that are entered again, see [Reentrant].
	Acquired func(Acquired)

	// Extended is called after each Alive and each heartbeat.
	Extended func(Extended)

	// Lost is called when a handle ends without its holder's doing. For each handle that ends, either Lost or Released
	// is called, except after [Lock.Detach] and [Client.Close].
	Lost func(Lost)

	// Released is called after each Unlock that gives a hold back, or finds only then that it is gone.
	Released func(Released)
}

// Result is how something ended, as a word of a small set: the value of a label.
type Result string

// The results.
const (
	ResultAcquired Result = "acquired"
	ResultHeld     Result = "held"     // another holds it or is ahead in the queue, and the call does not wait
	ResultGaveUp   Result = "gave_up"  // the caller's context ended, or the client was closed
	ResultRefused  Result = "refused"  // a condition of the caller's did not hold
	ResultExtended Result = "extended" // etcd confirmed the hold
	ResultReleased Result = "released" // it was held until now and is free
	ResultLost     Result = "lost"     // it had been lost before
	ResultError    Result = "error"    // etcd did not answer in time or refused
)

// AcquireResults are the results of [Acquired]. Use them to start a time series for each.
func AcquireResults() []Result {
	return []Result{ResultAcquired, ResultHeld, ResultGaveUp, ResultRefused, ResultError}
}

// ExtendResults are the results of [Extended].
func ExtendResults() []Result { return []Result{ResultExtended, ResultLost, ResultError} }

// Asking is a Lock or Do that has begun.
type Asking struct {
	Lock    string          // as the caller named it
	Context context.Context // the caller's, but it also ends with the call
}

// Acquired is the end of a wait for a lock.
type Acquired struct {
	Lock   string // as the caller named it
	Result Result
	Waited time.Duration // from the call until its end; without a rival it is the round trip to etcd
	Hold   *Lock         // nil unless acquired
	Err    error         // nil if acquired
}

// Extended is an attempt to put off alert and auto-unlock.
type Extended struct {
	Hold      *Lock
	Result    Result
	Heartbeat bool
	Took      time.Duration
	Err       error
}

// Reason is why a hold was lost, as a word of a small set.
type Reason string

// The reasons.
const (
	ReasonForced       Reason = "forced"        // a person removed it
	ReasonAutoUnlocked Reason = "auto_unlocked" // an unlocker did, because it was not extended in time
	ReasonAbandoned    Reason = "abandoned"     // an unlocker did, because a witness said that its holder was dead
	ReasonRemoved      Reason = "removed"       // somebody did who left no note
	// its time ran out here before etcd confirmed an extension; it may still stand
	ReasonTime Reason = "time"
)

// LostReasons are the reasons of [Lost].
func LostReasons() []Reason {
	return []Reason{ReasonForced, ReasonAutoUnlocked, ReasonAbandoned, ReasonRemoved, ReasonTime}
}

// Lost is the end of a handle that its holder did not bring about.
type Lost struct {
	Hold   *Lock
	Reason Reason
	Held   time.Duration // since the acquisition was sent
	Err    *LostError
}

// Released is the end of an Unlock.
type Released struct {
	Hold   *Lock
	Result Result        // released, lost, or error: then the giving back goes on in the background
	Held   time.Duration // since the acquisition was sent, or since the hold was adopted
	Err    error
}

// And returns hooks that call h and then others.
func (h Hooks) And(others Hooks) Hooks {
	return Hooks{
		Asking: both(h.Asking, others.Asking), Acquired: both(h.Acquired, others.Acquired),
		Extended: both(h.Extended, others.Extended),
		Lost:     both(h.Lost, others.Lost), Released: both(h.Released, others.Released),
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

// notifyAsking calls the hook for an acquisition that begins, and ends no later than ctx.
func (a *acquisition) notifyAsking(ctx context.Context) {
	if hook := a.c.opts.Hooks.Asking; hook != nil {
		hook(Asking{Lock: a.lock, Context: ctx})
	}
}

// notifyAcquired calls the hook for the end of an acquisition that began at this time.
func (a *acquisition) notifyAcquired(began time.Time, l *Lock, err error) {
	if hook := a.c.opts.Hooks.Acquired; hook != nil {
		defer unlockOnPanic(l)()
		hook(Acquired{Lock: a.lock, Result: acquireResult(err), Waited: time.Since(began), Hold: l, Err: err})
	}
}

// unlockOnPanic returns a function that gives the locks back when a hook panics: nobody will ever have their handles.
func unlockOnPanic(locks ...*Lock) func() {
	return func() {
		if value := recover(); value != nil {
			for _, l := range locks {
				if l != nil {
					l.Unlock()
				}
			}
			panic(value)
		}
	}
}

// notifyAcquired calls the hook for each lock that was taken, or for the one because of which none was.
func (b *batch) notifyAcquired(began time.Time, locks []*Lock, err error) {
	defer unlockOnPanic(locks...)()
	for i, l := range locks {
		b.wanted[i].notifyAcquired(began, l, nil)
	}
	if err == nil {
		return
	}
	failed := b.wanted[0]
	if held, isHeld := errors.AsType[*HeldError](err); isHeld {
		for _, a := range b.wanted {
			if a.lock == held.Lock {
				failed = a
			}
		}
	}
	failed.notifyAcquired(began, nil, err)
}

func acquireResult(err error) Result {
	_, isHeld := errors.AsType[*HeldError](err)
	switch {
	case err == nil:
		return ResultAcquired
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && isHeld,
		errors.Is(err, ErrClosed):
		return ResultGaveUp
	case errors.Is(err, ErrCondition):
		return ResultRefused
	case isHeld:
		return ResultHeld
	}
	return ResultError
}

func (l *Lock) notifyExtended(began time.Time, heartbeat bool, err error) {
	hook := l.c.opts.Hooks.Extended
	if hook == nil {
		return
	}
	result := ResultError
	switch {
	case err == nil:
		result = ResultExtended
	case errors.Is(err, ErrNotHeld):
		result = ResultLost
	}
	hook(Extended{Hold: l, Result: result, Heartbeat: heartbeat, Took: time.Since(began), Err: err})
}

func (l *Lock) notifyLost(why *LostError) {
	if hook := l.c.opts.Hooks.Lost; hook != nil {
		hook(Lost{Hold: l, Reason: why.Reason(), Held: time.Since(l.began.monotonic), Err: why})
	}
}

// Reason is why the hold was lost, in a word.
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

func (l *Lock) notifyReleased(err error) {
	hook := l.c.opts.Hooks.Released
	if hook == nil {
		return
	}
	result := ResultError
	switch {
	case err == nil:
		result = ResultReleased
	case errors.Is(err, ErrNotHeld):
		result = ResultLost
	}
	hook(Released{Hold: l, Result: result, Held: time.Since(l.began.monotonic), Err: err})
}
