package mutex

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// Durations of a lock for which neither the client nor the call says anything. If only one of the two is given, the
// other follows from it: AutoUnlockAfter is three times AlertAfter.
const (
	DefaultAlertAfter      = 5 * time.Minute
	DefaultAutoUnlockAfter = 3 * DefaultAlertAfter
)

// DefaultBacktraceDepth is the number of stack frames in a record.
const DefaultBacktraceDepth = 30

// DefaultHeartbeatLife is the time until auto-unlock of a lock with a heartbeat for which the call says nothing else.
const DefaultHeartbeatLife = time.Minute

const (
	minAutoUnlockAfter = 100 * time.Millisecond // the shortest life that a hold over a network can have
	maxDuration        = 10 * 365 * 24 * time.Hour
	maxSafetyMargin    = 30 * time.Second // bounds the default, which is a tenth of the time until auto-unlock
)

// Option sets one property of a lock.
type Option func(*settings)

type settings struct {
	owner, purpose  string
	alertAfter      time.Duration
	autoUnlockAfter time.Duration
	safetyMargin    time.Duration
	maximumHold     time.Duration // of the heartbeat; 0 = no heartbeat
	attributes      map[string]any
	backtraceDepth  int
	barge           bool
	reentrant       bool
	detached        bool // the hold outlives the process
	forHolder       bool // an adoption: the holder goes on
	onWait          func(Waiting)
	kind            kind
	only            []clientv3.Cmp // conditions and writes of the caller's, see If and Then
	with            []clientv3.Op
	documents       locktxn.Documents // below the prefix, that may be written all the same

	problems []error
}

// Owner is the program or service that holds the lock. It overrides that of the client.
func Owner(name string) Option { return func(s *settings) { s.owner = name } }

// Purpose is one line that tells whoever is paged what this lock is for.
func Purpose(text string) Option { return func(s *settings) { s.purpose = text } }

// AlertAfter is how long the work takes on a bad day. An alert is raised once this time has passed since the
// acquisition or the last [Lock.Alive]. It must be positive, and no longer than [AutoUnlockAfter] unless there is a
// [Heartbeat].
func AlertAfter(d time.Duration) Option {
	return func(s *settings) { s.alertAfter = s.positive("time until alert", d) }
}

// AutoUnlockAfter is when the lock is taken away from a silent holder, counted from the acquisition or the last
// [Lock.Alive]. It must be at least 100 ms. The handle's context ends a little earlier, see [SafetyMargin].
func AutoUnlockAfter(d time.Duration) Option {
	return func(s *settings) { s.autoUnlockAfter = s.positive("time until auto-unlock", d) }
}

// SafetyMargin is how long before the auto-unlock the handle's context ends, so that the work has stopped when another
// gets the lock. It should be longer than the work takes to stop. The default is a tenth of the time until auto-unlock,
// at most 30 seconds.
func SafetyMargin(d time.Duration) Option {
	return func(s *settings) { s.safetyMargin = s.positive("safety margin", d) }
}

// Heartbeat extends the time until auto-unlock in the background while the process lives, up to the maximum hold, which
// is counted from the acquisition. A short [AutoUnlockAfter] is enough then, and the lock of a dead process is soon
// free. Being alive is not progress: heartbeats do not postpone the alert.
func Heartbeat(maximumHold time.Duration) Option {
	return func(s *settings) { s.maximumHold = s.positive("maximum hold of the heartbeat", maximumHold) }
}

// Attribute adds a value to the record that is shown with the lock and in its history: a ticket, a build, a number of
// rows. The value is text, a number or a boolean.
func Attribute(name string, value any) Option {
	return func(s *settings) {
		if s.attributes == nil {
			s.attributes = map[string]any{}
		}
		s.attributes[name] = value
	}
}

// BacktraceDepth is the number of stack frames that the record keeps of the call that took the lock, 0 to 1000.
func BacktraceDepth(frames int) Option {
	return func(s *settings) {
		if frames < 0 || frames > 1000 {
			s.problems = append(s.problems, fmt.Errorf("the backtrace depth is %d, it must be between 0 and 1000",
				frames))
		}
		s.backtraceDepth = frames
	}
}

// Detached says that the work goes on when this process has ended, because another process takes it over: the end of
// this one is no proof that the lock is abandoned. [Client.Reserve] says so by itself, and [Lock.Detach] and
// [Client.Adopt] say so later: give it where this process may end before either of them could reach etcd.
func Detached() Option { return func(s *settings) { s.detached = true } }

// WithoutQueue takes the lock as soon as it is free, past the queue: for work that must not wait its turn, such as an
// operator's. A release wakes all who wait like this at once, and any of them may get the lock.
func WithoutQueue() Option { return func(s *settings) { s.barge = true } }

// OnWait has f called while [Client.Lock] waits: when the wait begins, and when the holder or the position has changed,
// which is checked about once a second. The calls come one after the other, from a goroutine of their own, and Lock
// does not return before the last one has.
func OnWait(f func(Waiting)) Option { return func(s *settings) { s.onWait = f } }

// positive records a problem unless a duration is positive and within reason.
func (s *settings) positive(name string, d time.Duration) time.Duration {
	switch {
	case d <= 0:
		s.problems = append(s.problems, fmt.Errorf("the %s is %v, it must be positive", name, d))
	case d > maxDuration:
		s.problems = append(s.problems, fmt.Errorf("the %s is %v, it must be at most %v", name, d, maxDuration))
	}
	return d
}

// settle applies the options in order, fills in the defaults and refuses contradictions.
func settle(owner string, options ...[]Option) (settings, error) {
	s := settings{owner: owner, backtraceDepth: DefaultBacktraceDepth}
	for _, list := range options {
		for _, o := range list {
			if o != nil {
				o(&s)
			}
		}
	}
	if err := errors.Join(s.problems...); err != nil {
		return s, err
	}
	s.complete()
	return s, errors.Join(s.check(), s.kind.settle(&s.attributes), s.checkReentrant())
}

func (s *settings) complete() {
	if s.maximumHold > 0 {
		if s.alertAfter == 0 {
			s.alertAfter = min(DefaultAlertAfter, s.maximumHold)
		}
		if s.autoUnlockAfter == 0 {
			s.autoUnlockAfter = min(DefaultHeartbeatLife, s.maximumHold)
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
	case s.autoUnlockAfter < minAutoUnlockAfter:
		return fmt.Errorf("the time until auto-unlock is %v, it must be at least %v", s.autoUnlockAfter,
			minAutoUnlockAfter)
	case s.safetyMargin >= s.autoUnlockAfter:
		return fmt.Errorf("the safety margin of %v leaves nothing of the time until auto-unlock of %v", s.safetyMargin,
			s.autoUnlockAfter)
	case !heartbeat && s.alertAfter > s.autoUnlockAfter:
		return fmt.Errorf("the time until alert of %v is longer than the time until auto-unlock of %v",
			s.alertAfter, s.autoUnlockAfter)
	case heartbeat && s.maximumHold < s.autoUnlockAfter:
		return fmt.Errorf("the heartbeat's maximum hold of %v is shorter than the time until auto-unlock of %v",
			s.maximumHold, s.autoUnlockAfter)
	case heartbeat && s.alertAfter > s.maximumHold:
		return fmt.Errorf("the time until alert of %v is longer than the heartbeat's maximum hold of %v",
			s.alertAfter, s.maximumHold)
	}
	return nil
}
