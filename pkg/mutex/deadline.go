package mutex

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// sleepCheck is how often a holder checks whether its machine slept. Timers stand still while it does.
	sleepCheck = 2 * time.Second

	// leastSleep is the difference between the clocks that is taken for a sleep. Smaller ones come from rounding, and
	// from a wall clock that is being slewed.
	leastSleep = time.Second
)

// clock is the wall clock for the deadlines of this hold. When that clock is set back while the lock is held, the
// deadlines still move on with the time that passes.
func (l *Lock) clock() time.Time {
	at := l.c.wall()
	passed := l.began.wall.Add(time.Since(l.began.monotonic)).Truncate(time.Millisecond)
	if at.Before(passed) {
		return passed
	}
	return at
}

// timeLeft is how far away the local deadline is. The monotonic clock stands still while the machine sleeps or a
// hypervisor has stopped it, and the deadlines in the record do not: so what the wall clock gained on it is deducted. A
// wall clock that was set forward looks the same and costs holds their time, too: better lost than held twice. The
// caller holds mu.
func (l *Lock) timeLeft() time.Duration {
	now := l.c.moment()
	left := l.deadline.until.Sub(now.monotonic)
	counted := l.deadline.counted
	if slept := now.wall.Sub(counted.wall) - now.monotonic.Sub(counted.monotonic); slept >= leastSleep {
		left -= slept
	}
	return left
}

// extendUntil moves the local deadline, never back. It is counted since a moment before the extension was sent.
func (l *Lock) extendUntil(t time.Time, since moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil && t.After(l.deadline.until) {
		l.deadline.until = t
		l.deadline.counted = since
		if l.deadline.watched {
			l.deadline.timer.Reset(min(l.timeLeft(), sleepCheck))
		}
	}
}

// putOff moves the local deadline to the auto-unlock in the record.
func (l *Lock) putOff(autoUnlockAt time.Time) {
	now := l.c.moment() // before the wall clock is read, whose times are rounded down
	l.extendUntil(now.monotonic.Add(autoUnlockAt.Sub(l.clock())-time.Millisecond-l.set.safetyMargin), now)
}

func (l *Lock) deadlineIs(text string) {
	if t, err := metadata.ParseTime(text); err == nil {
		l.putOff(t)
	}
}
