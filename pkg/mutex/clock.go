package mutex

import "time"

const (
	// sleepCheck is how often a holder looks whether its machine slept. Timers stand still while it does.
	sleepCheck = 2 * time.Second

	// leastSleep is the difference between the clocks that is taken for a sleep. Smaller ones come from rounding, and
	// from a wall clock that is being slewed.
	leastSleep = time.Second
)

// moment is one moment on both clocks of a machine.
type moment struct{ monotonic, wall time.Time }

func (c *Client) moment() moment { return moment{time.Now(), c.wall()} }

// wall is the time that is written into records.
func (c *Client) wall() time.Time { return c.opts.Now().Truncate(time.Millisecond) }

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

// awake ends the handle if its time ran out while the machine slept, before the timer fires.
func (l *Lock) awake() error {
	l.mu.Lock()
	over := l.cause == nil && !l.deadline.until.IsZero() && l.timeLeft() <= 0
	l.mu.Unlock()
	if over {
		l.runOut()
	}
	return l.err()
}
