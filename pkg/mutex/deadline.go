package mutex

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// sleepCheck is how often a holder checks whether its machine slept. Timers stand still during sleep.
	sleepCheck = 2 * time.Second

	// minSleep is the least difference between the clocks that counts as sleep. Smaller ones come from rounding, and
	// from a wall clock that is being slewed.
	minSleep = time.Second
)

// clock returns the wall-clock time for the deadlines of this hold. If that clock is set back while the lock is held,
// the deadlines still advance with the time that passes.
func (l *Lock) clock() time.Time {
	at := l.c.wall()
	passed := l.began.wall.Add(time.Since(l.began.monotonic)).Truncate(time.Millisecond)
	if at.Before(passed) {
		return passed
	}
	return at
}

// timeLeft returns how far away the local deadline is. The monotonic clock stands still while the machine sleeps or a
// hypervisor has stopped it, but the deadlines in the record do not, so timeLeft deducts what the wall clock gained on
// it. A wall clock that was set forward looks the same and also costs holds their time: better lost than held twice.
// The caller holds mu.
func (l *Lock) timeLeft() time.Duration {
	now := l.c.moment()
	left := l.deadline.until.Sub(now.monotonic)
	counted := l.deadline.counted
	if slept := now.wall.Sub(counted.wall) - now.monotonic.Sub(counted.monotonic); slept >= minSleep {
		left -= slept
	}
	return left
}

// extendUntil moves the local deadline, never back, after an extension that wrote this auto-unlock. The deadline counts
// from since, a moment before the extension was sent.
func (l *Lock) extendUntil(t time.Time, since moment, autoUnlockAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if autoUnlockAt.After(l.deadline.recorded) {
		l.deadline.recorded = autoUnlockAt
	}
	if l.cause != nil {
		return
	}
	before := l.deadline
	left := l.timeLeft()
	l.deadline.until = t
	l.deadline.counted = since
	if l.timeLeft() < left { // each less the sleep since it began to count
		l.deadline = before
		return
	}
	l.resetTimer()
}

// applyAutoUnlock moves the local deadline, never back, by as much as another writer moved the auto-unlock in the
// record: another process with the uuid, or an operator. The writer's clock is not this machine's, so what counts is
// the difference from the auto-unlock that the handle knew, not how far away the new one is. More time whose writer
// counted from its own clock gives no more than it says. The caller holds mu.
func (l *Lock) applyAutoUnlock(autoUnlockAt time.Time, by *metadata.MoreTime) {
	if l.cause != nil || !autoUnlockAt.After(l.deadline.recorded) {
		return
	}
	left := l.timeLeft()
	longer := autoUnlockAt.Sub(l.deadline.recorded)
	if l.deadline.recorded.IsZero() { // it could not be read
		longer = autoUnlockAt.Sub(l.clock()) - time.Millisecond - l.set.safetyMargin - left
	}
	if granted, bound := grantedTime(autoUnlockAt, by); bound {
		longer = min(longer, granted-l.set.safetyMargin-left)
	}
	l.deadline.recorded = autoUnlockAt
	if longer > 0 {
		l.deadline.until = l.deadline.until.Add(longer)
		l.resetTimer()
	}
}

// grantedTime returns how much more time an operator gave, from the moment it was written, if the writer counted from
// its own clock. A writer does so when its clock was past the previous auto-unlock.
func grantedTime(autoUnlockAt time.Time, by *metadata.MoreTime) (time.Duration, bool) {
	if by == nil || by.AutoUnlockAt.IsZero() {
		return 0, false
	}
	granted := by.Duration()
	if granted <= 0 {
		granted = autoUnlockAt.Sub(by.At.Time)
	}
	const rounding = time.Second // of the deadlines that an operator writes
	return granted, autoUnlockAt.Sub(by.AutoUnlockAt.Time) > granted+rounding
}

// resetTimer sets the timer to the local deadline. The caller holds mu.
func (l *Lock) resetTimer() {
	if l.deadline.watched {
		l.deadline.timer.Reset(min(l.timeLeft(), sleepCheck))
	}
}
