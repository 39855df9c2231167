package mutex

import (
	"context"
	"log/slog"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// hold is the handle of a lock that etcd says is ours, by this record.
func (a *acquisition) hold(b bid, record string, token int64, autoUnlockAt time.Time) (*Lock, error) {
	c := a.c
	l := &Lock{
		c: c, set: a.set, asked: a.lock, held: locktxn.Hold{Lock: record, UUID: a.draft.UUID, Token: token},
		began: b.moment, site: a.site, outer: a.outer,
		origin:    origin{doubt: a.doubt, detached: a.draft.Process.Detached},
		extension: extension{alertTarget: b.wall.Add(a.set.alertAfter)},
		deadline: deadline{
			until:   b.monotonic.Add(autoUnlockAt.Sub(b.wall) - a.set.safetyMargin),
			counted: b.moment,
		},
	}
	a.doubt = false
	switch lease := a.queue.lease; {
	case a.queue.place.Revision != 0 && !a.set.kind.shared(): // shares leave the queue when they are taken
		l.origin.lease = lease
	case lease != nil && l.origin.doubt:
		c.drop(lease)
	case lease != nil:
		c.giveBack(lease)
	}
	a.queue = queuePlace{}
	l.prepare()
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

// prepare makes what a handle needs before anybody has it.
func (l *Lock) prepare() {
	l.lost = make(chan struct{})
	l.extension.mutex = make(chan struct{}, 1)
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.Background(), handleKey{}, l))
	l.watch, l.stop = context.WithCancel(context.Background())
}

// begin starts what goes on as long as the hold does.
func (l *Lock) begin() error {
	c := l.c
	c.holds.add(l)

	l.mu.Lock() // the timer may fire before it is stored
	l.deadline.timer = time.AfterFunc(min(l.timeLeft(), watchAfter), l.due)
	l.detach = context.AfterFunc(c.ctx, func() { l.finish(ErrClosed) })
	l.mu.Unlock()
	if l.set.maximumHold > 0 {
		c.spawn(func() { l.beat(l.watch) })
	}
	if c.isClosed() {
		if !l.origin.adopted {
			l.Unlock()
		}
		return ErrClosed
	}
	return nil
}

// err is why the handle ended, nil while it is held.
func (l *Lock) err() error {
	if l.reentry.of != nil {
		return context.Cause(l.ctx) // of this handle, or of the hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// finish ends the handle for the first cause that comes; later ones change nothing.
func (l *Lock) finish(cause error) (first bool) {
	l.mu.Lock()
	first = l.cause == nil
	if first {
		l.cause = cause
	}
	l.mu.Unlock()
	if !first {
		return false
	}
	l.cancel(cause)
	if lost, isLost := cause.(*LostError); isLost {
		close(l.lost)
		if lost.Certain { // else Unlock may find out
			l.cancelAcquisition()
		}
	}
	l.stop()
	l.c.holds.remove(l)
	if l.deadline.timer != nil { // else it never began
		l.deadline.timer.Stop()
		l.detach()
	}
	if l.origin.lease != nil && cause != ErrUnlocked {
		l.c.drop(l.origin.lease) // the next in the queue does not have to wait for this process
	}
	return true
}

// lose ends the handle because the hold is gone or may be.
func (l *Lock) lose(why *LostError) *LostError {
	if l.finish(why) {
		l.c.log(slog.LevelWarn, "lock lost", l.about(slog.Any("error", why))...)
		l.notifyLost(why)
	}
	return why
}

// due runs when the hold is no longer a short one, now and then to see whether the machine slept, and at the local
// deadline, which an extension may have moved. One timer serves all, because a timer is much of what a short hold
// costs.
func (l *Lock) due() {
	l.mu.Lock()
	left := l.timeLeft()
	watch := !l.deadline.watched
	l.deadline.watched = true
	if left > 0 {
		l.deadline.timer.Reset(min(left, sleepCheck))
	}
	l.mu.Unlock()
	switch {
	case left <= 0:
		l.runOut()
	case watch:
		l.c.spawn(l.observe)
	}
}

// runOut ends the handle because its time is over.
func (l *Lock) runOut() {
	l.lose(&LostError{Lock: l.held.Lock, UUID: l.held.UUID, Token: l.held.Token, At: l.c.wall()})
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

// putOff moves the local deadline because the record says that the lock is auto-unlocked then.
func (l *Lock) putOff(autoUnlockAt time.Time) {
	now := l.c.moment() // before the wall clock is read, whose times are rounded down
	l.extendUntil(now.monotonic.Add(autoUnlockAt.Sub(l.clock())-time.Millisecond-l.set.safetyMargin), now)
}
