package mutex

import (
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The durations of a lock when neither the client nor the call sets them. If only one is set, the other follows from
// it: AutoUnlockAfter is three times AlertAfter.
const (
	DefaultAlertAfter      = 5 * time.Minute
	DefaultAutoUnlockAfter = 3 * DefaultAlertAfter
)

// DefaultBacktraceDepth is the number of stack frames in a record.
const DefaultBacktraceDepth = 30

// DefaultHeartbeatTTL is the default of [AutoUnlockAfter] for a lock with a [Heartbeat].
const DefaultHeartbeatTTL = time.Minute

const (
	minAutoUnlockAfter = 100 * time.Millisecond // the shortest life that a hold over a network can have
	maxDuration        = 10 * 365 * 24 * time.Hour
	maxSafetyMargin    = 30 * time.Second // bounds the default, which is a tenth of the time until auto-unlock
)

// Option sets one property of a lock.
type Option func(*settings)

type settings struct {
	lock             string
	together         []string          // the locks that are taken at once, see ForLock
	forLock          bool              // the options of ForLock are being applied
	holder           metadata.Identity // without the process, which the client knows
	alertAfter       time.Duration
	autoUnlockAfter  time.Duration
	safetyMargin     time.Duration
	maximumHold      time.Duration // of the heartbeat; 0 = no heartbeat
	lockDelay        time.Duration // as of a [metadata.Record]
	attributes       map[string]any
	backtraceDepth   int
	withoutQueue     bool
	reentrant        bool
	detached         bool // the hold outlives the process
	onBehalfOfHolder bool // an adoption that leaves the hold to its holder
	onWait           func(*HeldError)
	onFinishRequest  func(metadata.FinishRequest)
	askToFinish      string // why the holder is asked to finish; empty if it is not
	kind             kind
	conditions       []clientv3.Cmp    // the caller's, see If
	writes           []clientv3.Op     // the caller's, see Then
	documents        locktxn.Documents // keys below the prefix that Then may write

	problems []error
}

// Owner names the program or service that holds the lock. It overrides that of the client.
func Owner(name string) Option { return func(s *settings) { s.holder.Owner = name } }

// Purpose is one line that tells whoever is paged what the lock is for.
func Purpose(text string) Option { return func(s *settings) { s.holder.Purpose = text } }

// AlertAfter sets how long after the acquisition or the last [Lock.Alive] an alert is raised: how long the work takes
// on a bad day. It must be positive, and no longer than [AutoUnlockAfter] unless there is a [Heartbeat].
func AlertAfter(d time.Duration) Option {
	return func(s *settings) { s.alertAfter = s.checkPositive("AlertAfter", d) }
}

// AutoUnlockAfter sets how long after the acquisition or the last [Lock.Alive] a silent holder loses the lock. It must
// be at least 100 ms. The handle's context ends a little earlier; see [SafetyMargin].
func AutoUnlockAfter(d time.Duration) Option {
	return func(s *settings) { s.autoUnlockAfter = s.checkPositive("AutoUnlockAfter", d) }
}

// SafetyMargin is how long before the auto-unlock the handle's context ends, so that the work has stopped before
// another client gets the lock. It should be longer than the work takes to stop. The default is a tenth of the time
// until auto-unlock, at most 30 seconds.
func SafetyMargin(d time.Duration) Option {
	return func(s *settings) { s.safetyMargin = s.checkPositive("SafetyMargin", d) }
}

// Heartbeat extends the time until auto-unlock in the background while the process lives, at least every 20 seconds, up
// to the maximum hold, which is counted from the acquisition. It proves that the process lives, not that the work
// progresses, so it does not postpone the alert.
func Heartbeat(maximumHold time.Duration) Option {
	return func(s *settings) { s.maximumHold = s.checkPositive("the maximum hold of Heartbeat", maximumHold) }
}

// LockDelay keeps other clients from taking the lock for this long after the hold is ended by force or because of its
// deadline, because its holder may still be working for a moment. There is no delay after a release by the holder, or
// when the holder is proven dead. It is rounded up to whole seconds, and at most an hour. An unlocker may have a
// default for holds without this option; zero means no delay in any case.
func LockDelay(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 || d > metadata.MaxLockDelay {
			s.refuse("LockDelay is %v: it must be between 0 and %v", d, metadata.MaxLockDelay)
		}
		if s.lockDelay = d; d == 0 {
			s.lockDelay = metadata.NoLockDelay
		}
	}
}

// Attribute adds a value to the record, such as a ticket, a build or a number of rows. It is shown with the lock and in
// its history. The value is text, a number or a boolean.
func Attribute(name string, value any) Option {
	return func(s *settings) {
		if s.attributes == nil {
			s.attributes = map[string]any{}
		}
		s.attributes[name] = value
	}
}

// BacktraceDepth is the number of stack frames in the record, 0 to 1000, beginning with the call that takes the lock.
func BacktraceDepth(frames int) Option {
	return func(s *settings) {
		if frames < 0 || frames > 1000 {
			s.refuse("BacktraceDepth is %d: it must be between 0 and 1000", frames)
		}
		s.backtraceDepth = frames
	}
}

// Detached declares that the work continues after this process ends, because another process takes it over: the end of
// this process does not prove that the lock is abandoned. [Client.Reserve], [Lock.Detach] and [Client.Adopt] imply it;
// use the option if this process may end before they reach etcd.
func Detached() Option { return func(s *settings) { s.detached = true } }

// WithoutQueue takes the lock as soon as it is free, ahead of the queue: for work that must not wait its turn, such as
// an operator's.
func WithoutQueue() Option { return func(s *settings) { s.withoutQueue = true } }

// OnWait calls f while [Client.Lock] waits, with what it would return if it gave up: when the wait begins, and when the
// holder or the position has changed, which is checked about once a second. The calls are sequential, in a separate
// goroutine, and Lock does not return before the last of them has.
func OnWait(f func(*HeldError)) Option { return func(s *settings) { s.onWait = f } }

// AskToFinish makes [Client.Lock] ask each holder that it waits for, once, to finish early, as an operator may. Holders
// learn of it through [Lock.FinishRequested] and may ignore it. Of a lock that several can hold, it asks those that
// would have to finish. A holder that has already been asked is not asked again. If the request fails, the wait
// continues. It costs a small request per second of waiting, as [OnWait] does.
func AskToFinish(reason string) Option {
	return func(s *settings) {
		if err := protocol.CheckReason(reason); err != nil {
			s.refuse("AskToFinish: %w", err)
		}
		s.askToFinish = reason
	}
}

// OnFinishRequest calls f for each request to finish, see [Lock.FinishRequested]. The calls are sequential, in a
// separate goroutine, and may continue for a short while after the lock is released. The texts of the request are
// whatever its writer wrote: escape them.
func OnFinishRequest(f func(metadata.FinishRequest)) Option {
	return func(s *settings) { s.onFinishRequest = f }
}

// Reentrant lets [Client.Lock], [Client.TryLock] and [Client.Do] enter a hold of the lock again if ctx was made under
// it: they return another handle of that hold at once, and ignore the other options. The lock is released, and the
// context of the outer handle ends, when the last handle is unlocked. Without this option the call fails with an
// [*AlreadyHeldError].
func Reentrant() Option { return func(s *settings) { s.reentrant = true } }

// Semaphore takes permits of a semaphore instead of the whole lock: at most limit of them are held at a time, across
// all clients. [Weight] sets how many are taken; the default is one. While the limits of clients differ, each keeps to
// its own.
//
// Each holder has its own record, named after the lock, # and the lowest free number: [Lock.Name] is "pool#2".
func Semaphore(limit int) Option {
	return func(s *settings) {
		s.kind.choose(metadata.KindSemaphore, "Semaphore")
		s.kind.limit = limit
		if limit < 1 || limit > MaxLimit {
			s.refuse("the limit of Semaphore is %d: it must be between 1 and %d", limit, MaxLimit)
		}
	}
}

// Weight is how many permits of a [Semaphore] are taken, all or none. A heavy weight waits at the head of the queue
// until enough are free, and no waiter behind it overtakes it.
func Weight(permits int) Option {
	return func(s *settings) {
		s.kind.weight = permits
		if permits < 1 {
			s.refuse("Weight is %d: it must be at least 1", permits)
		}
	}
}

// Shared takes a read-write lock for reading: alongside other readers, but not alongside a writer. Each reader has its
// own record, as with a [Semaphore].
func Shared() Option { return func(s *settings) { s.kind.choose(metadata.KindShared, "Shared") } }

// Exclusive takes a read-write lock for writing, alone. It also takes all permits of a [Semaphore].
func Exclusive() Option {
	return func(s *settings) { s.kind.choose(metadata.KindExclusive, "Exclusive") }
}

// If makes [Client.TryLock] and [Client.TryLockAll] take the lock only if these compares of the caller's own keys in
// the same etcd hold too, in the same transaction. If they do not hold, the error is a [*ConditionError], even if the
// lock is also held. Calls that wait refuse this option: take the lock, then compare in a transaction with
// [Lock.Guard].
func If(compares ...clientv3.Cmp) Option {
	return func(s *settings) { s.conditions = append(s.conditions, compares...) }
}

// Then makes [Client.TryLock] and [Client.TryLockAll] write the caller's own keys, by puts and deletions, in the
// transaction that takes the lock. The lock is taken if and only if the writes are done, at the revision [Lock.Token].
//
// After an error the writes were not done and will not be, unless it is a [metadata.ErrOutcomeUnknown], or a
// [*LostError]: then the lock was removed before this process knew that it had taken it.
//
// The keys must lie outside the prefix of the locks, and the whole transaction must be smaller than 1.5 MiB. Calls that
// wait refuse the option; see [If].
func Then(writes ...clientv3.Op) Option {
	return func(s *settings) { s.writes = append(s.writes, writes...) }
}

// newSettings applies the options in order, fills in the defaults and refuses contradictions.
func newSettings(lock, owner string, options ...[]Option) (settings, error) {
	s := settings{lock: lock, holder: metadata.Identity{Owner: owner}, backtraceDepth: DefaultBacktraceDepth}
	s.apply(slices.Concat(options...))
	if err := errors.Join(s.problems...); err != nil {
		return s, err
	}
	s.complete()
	return s, errors.Join(s.check(), s.kind.complete(&s.attributes))
}

func (s *settings) apply(options []Option) {
	for _, o := range options {
		if o != nil {
			o(s)
		}
	}
}

func (s *settings) refuse(format string, arguments ...any) {
	s.problems = append(s.problems, fmt.Errorf(format, arguments...))
}

// checkPositive returns the duration. It records a problem unless it is positive and at most maxDuration.
func (s *settings) checkPositive(name string, d time.Duration) time.Duration {
	switch {
	case d <= 0:
		s.refuse("%s is %v: it must be positive", name, d)
	case d > maxDuration:
		s.refuse("%s is %v: it must be at most %v", name, d, maxDuration)
	}
	return d
}

func (s *settings) complete() {
	if s.maximumHold > 0 {
		if s.alertAfter == 0 {
			s.alertAfter = min(DefaultAlertAfter, s.maximumHold)
		}
		if s.autoUnlockAfter == 0 {
			s.autoUnlockAfter = min(DefaultHeartbeatTTL, s.maximumHold)
		}
	}
	switch {
	case s.alertAfter == 0 && s.autoUnlockAfter == 0:
		s.alertAfter = DefaultAlertAfter
		s.autoUnlockAfter = DefaultAutoUnlockAfter
	case s.alertAfter == 0:
		s.alertAfter = s.autoUnlockAfter / 3
	case s.autoUnlockAfter == 0:
		s.autoUnlockAfter = 3 * s.alertAfter
	}
	if s.safetyMargin == 0 {
		s.safetyMargin = min(s.autoUnlockAfter/10, maxSafetyMargin)
	}
}

func (s *settings) check() error {
	heartbeat := s.maximumHold > 0
	switch {
	case s.reentrant && s.conditional():
		return errors.New("If and Then cannot be Reentrant: a hold that is entered again is not taken again")
	case s.autoUnlockAfter < minAutoUnlockAfter:
		return fmt.Errorf("AutoUnlockAfter is %v: it must be at least %v", s.autoUnlockAfter, minAutoUnlockAfter)
	case s.safetyMargin >= s.autoUnlockAfter:
		return fmt.Errorf("SafetyMargin is %v: it must be shorter than AutoUnlockAfter, which is %v", s.safetyMargin,
			s.autoUnlockAfter)
	case !heartbeat && s.alertAfter > s.autoUnlockAfter:
		return fmt.Errorf("AlertAfter is %v: it must not be longer than AutoUnlockAfter, which is %v",
			s.alertAfter, s.autoUnlockAfter)
	case heartbeat && s.maximumHold < s.autoUnlockAfter:
		return fmt.Errorf("the maximum hold of Heartbeat is %v: it must not be shorter than AutoUnlockAfter, "+
			"which is %v", s.maximumHold, s.autoUnlockAfter)
	case heartbeat && s.alertAfter > s.maximumHold:
		return fmt.Errorf("AlertAfter is %v: it must not be longer than the maximum hold of Heartbeat, which is %v",
			s.alertAfter, s.maximumHold)
	}
	return nil
}

// checkSpan reports whether an extension can have these times.
func (s settings) checkSpan(by span) error {
	s.problems = nil
	s.safetyMargin = 0 // a shorter time than that moves no deadline
	s.apply([]Option{AlertAfter(by.alertAfter), AutoUnlockAfter(by.autoUnlockAfter)})
	return errors.Join(append(s.problems, s.check())...)
}

// stamp writes the times of a hold that begins now into its record.
func (s *settings) stamp(d *lockrecord.Draft, now time.Time) {
	d.LockedAt = now
	d.AutoUnlockAt = now.Add(s.autoUnlockAfter)
	d.AlertAt = now.Add(min(s.alertAfter, s.autoUnlockAfter))
	if s.maximumHold > 0 {
		d.HeartbeatUntil = now.Add(s.maximumHold)
	}
}

func (s *settings) conditional() bool { return len(s.conditions)+len(s.writes) > 0 }
