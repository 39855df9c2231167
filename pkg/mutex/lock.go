package mutex

import (
	"context"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// Lock is a lock that this process holds, until [Lock.Unlock] or until it is lost. It is safe for concurrent use.
type Lock struct {
	c     *Client
	set   settings
	asked string // the name that was asked for; that of the hold is another where it is a share
	held  locktxn.Hold

	at      place  // that took it
	outer   *Lock  // the innermost hold under which it was taken
	of      *Lock  // the handle whose hold this one entered again; nil for that handle itself
	group   *Locks // the locks that were taken together with this one; nil when there are none
	head    bool   // this handle stands for all of the group
	adopted bool   // another handle took it, and may have a ticket

	lease *lease // of the ticket, for as long as the hold lasts; nil when the lock did not come by the queue
	doubt bool   // a sending of the acquisition may still be on its way

	start time.Time // monotonic: before the acquisition was sent; wall is the record's time of the same moment
	wall  time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}

	turn chan struct{} // held by whoever extends
	// by whoever has the turn: mod revision of the last word about the work that this handle knows; 0 for none
	said int64

	mu       sync.Mutex
	cause    error     // why the handle ended; nil while it is held
	until    time.Time // local deadline, monotonic
	counted  moment    // since when it is counted
	goal     time.Time // when people are to be alerted, wall clock
	progress string    // the last note
	alertAt  time.Time // when somebody else with the uuid wants people to be alerted, wall clock: not before
	beyond   bool      // the alert may come after the auto-unlock, which others put off
	inside   int       // handles that entered the hold again and were not unlocked
	out      bool      // this handle was unlocked

	leaving <-chan struct{} // closed when an UnlockWith is over; nil when there was none

	timer   *time.Timer        // runs due: first for the watch of a hold that is not short, then at the local deadline
	watched bool               // the watch was started
	detach  func() bool        // from the client's context
	watch   context.Context    // ends with the handle
	stop    context.CancelFunc // ends watch

	unlock    sync.Once
	unlockErr error
}

// hold is the handle of a lock that etcd says is ours, by this record.
func (a *acquisition) hold(b bid, record string, token int64, autoUnlockAt time.Time) (*Lock, error) {
	c := a.c
	l := &Lock{
		c: c, set: a.set, asked: a.lock, held: locktxn.Hold{Lock: record, UUID: a.draft.UUID, Token: token},
		start: b.start, wall: b.wall, goal: b.wall.Add(a.set.alertAfter),
		until:   b.start.Add(autoUnlockAt.Sub(b.wall) - a.set.safetyMargin),
		counted: moment{b.start, b.wall},
		at:      a.at, outer: a.outer,
	}
	l.doubt, a.doubt = a.doubt, false
	switch lease := a.queue.lease; {
	case a.queue.place.Revision != 0 && !a.set.kind.shared(): // shares leave the queue when they are taken
		l.lease = lease
	case lease != nil && l.doubt:
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
	l.turn = make(chan struct{}, 1)
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.Background(), handleKey{}, l))
	l.watch, l.stop = context.WithCancel(context.Background())
}

// begin starts what goes on as long as the hold does.
func (l *Lock) begin() error {
	c := l.c
	c.holds.add(l)

	l.mu.Lock() // the timer may fire before it is stored
	l.timer = time.AfterFunc(min(l.timeLeft(), watchAfter), l.due)
	l.detach = context.AfterFunc(c.ctx, func() { l.finish(ErrClosed) })
	l.mu.Unlock()
	if l.set.maximumHold > 0 {
		c.spawn(l.beat)
	}
	if c.isClosed() {
		if !l.adopted {
			l.Unlock()
		}
		return ErrClosed
	}
	return nil
}

// Name is the lock's name: that of the record, which is "pool#2" for a share of the lock "pool", see [Semaphore] and
// [Shared].
func (l *Lock) Name() string {
	if l.none() {
		return ""
	}
	return l.held.Lock
}

// UUID names this one hold, in the record and in its history.
func (l *Lock) UUID() string {
	if l.none() {
		return ""
	}
	return l.held.UUID
}

// Token is the fencing token of this hold. It is greater than that of every earlier hold of any lock in the same etcd,
// and does not change while the lock is held. A resource that refuses tokens smaller than the greatest it has seen is
// safe from holders that do not know yet that they lost the lock. It is 0, which is no token, of the handle of no hold.
func (l *Lock) Token() int64 {
	if l.none() {
		return 0
	}
	token := l.held.Token
	if l.head {
		for _, one := range l.group.locks {
			token = max(token, one.held.Token)
		}
	}
	return token
}

// Guard is a compare for the caller's own transactions in the same etcd: they commit only while this hold stands. It
// never holds for a handle that stands for several locks, which one compare cannot fence: see [Lock.Guards].
func (l *Lock) Guard() clientv3.Cmp {
	switch {
	case l.none():
		return never()
	case l.head:
		l.c.line(slog.LevelWarn, "Guard fences one lock, and these are several: use Guards", l.about()...)
		return never()
	}
	return locktxn.Guard(l.c.layout, l.held)
}

// Guards are the compares for the caller's own transactions in the same etcd: they commit only while this hold stands,
// and all that were taken together with it.
func (l *Lock) Guards() []clientv3.Cmp {
	if !l.none() && l.group != nil {
		return l.group.Guards()
	}
	return []clientv3.Cmp{l.Guard()}
}

// Context ends when this process must not act as the holder any more. context.Cause tells why: a [*LostError],
// [ErrUnlocked] or [ErrClosed]. It carries the handle, see [FromContext], and nothing of the context that took the
// lock: that one's deadline is about the waiting.
func (l *Lock) Context() context.Context {
	if l.none() {
		return noContext()
	}
	return l.ctx
}

// Lost is closed when the hold is lost, or may be: the cause of [Lock.Context] is a [*LostError] then. It stays open
// when the holder unlocks.
func (l *Lock) Lost() <-chan struct{} {
	if l.none() {
		return noContext().Done()
	}
	return l.lost
}

// Deadline is when the context ends unless the hold is extended before: the auto-unlock minus the safety margin, on
// this machine's clock.
func (l *Lock) Deadline() time.Time {
	switch {
	case l.none():
		return time.Time{}
	case l.head:
		return l.group.Deadline()
	case l.of != nil:
		return l.of.Deadline()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// err is why the handle ended, nil while it is held.
func (l *Lock) err() error {
	if l.of != nil {
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
	if l.timer != nil { // else it never began
		l.timer.Stop()
		l.detach()
	}
	if l.lease != nil && cause != ErrUnlocked {
		l.c.drop(l.lease) // who is next in the queue does not have to wait for this process
	}
	return true
}

// lose ends the handle because the hold is gone or may be.
func (l *Lock) lose(why *LostError) *LostError {
	if l.finish(why) {
		l.c.line(slog.LevelWarn, "lock lost", l.about(slog.Any("error", why))...)
		l.tellLost(why)
	}
	return why
}

// due runs when the hold is not short any more, now and then to see whether the machine slept, and when the local
// deadline is reached. An extension since then has moved that. It is one timer for all, because a timer is much of what
// a short hold costs.
func (l *Lock) due() {
	l.mu.Lock()
	left := l.timeLeft()
	watch := !l.watched
	l.watched = true
	if left > 0 {
		l.timer.Reset(min(left, sleepCheck))
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
	if l.cause == nil && t.After(l.until) {
		l.until = t
		l.counted = since
		if l.watched {
			l.timer.Reset(min(l.timeLeft(), sleepCheck))
		}
	}
}

// putOff moves the local deadline because the record says that the lock is auto-unlocked then.
func (l *Lock) putOff(autoUnlockAt time.Time) {
	now := l.c.moment() // before the wall clock is read, whose times are rounded down
	l.extendUntil(now.monotonic.Add(autoUnlockAt.Sub(l.clock())-time.Millisecond-l.set.safetyMargin), now)
}
