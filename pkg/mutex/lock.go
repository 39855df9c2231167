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

	site  callSite // that took it
	began moment   // before the acquisition was sent; its wall clock is the record's

	outer    *Lock  // the innermost hold under which it was taken
	group    *Locks // the locks that were taken together with this one; nil when there are none
	forGroup bool   // this handle stands for all of the group
	origin   origin

	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}
	watch  context.Context    // of what runs in the background: ends with the handle
	stop   context.CancelFunc // ends watch
	detach func() bool        // from the client's context

	mu        sync.Mutex
	cause     error // why the handle ended; nil while it is held
	deadline  deadline
	extension extension
	reentry   reentry
	unlocking unlocking
}

// origin is how a handle came by its hold, which tells what else has to end with it.
type origin struct {
	lease   *lease // of the ticket, for as long as the hold lasts; nil when the lock did not come by the queue
	doubt   bool   // a sending of the acquisition may still be on its way
	adopted bool   // another handle took it, and may have a ticket
	// the end of this process is no proof of the hold's end: the record says so, or names another process
	detached bool
}

// deadline is when the handle ends by this machine's clock. mu guards it.
type deadline struct {
	until   time.Time   // monotonic
	counted moment      // since when it is counted
	timer   *time.Timer // runs due: first for the watch of a hold that is not short, then at the deadline
	watched bool        // the watch was started
}

// extension is what a handle knows of the deadlines and the progress in its record. mu guards the fields below mutex.
type extension struct {
	mutex             chan struct{} // held by whoever extends
	lastAliveRevision int64         // by the holder of mutex: of the record's last field alive known here; 0 for none

	alertTarget      time.Time // when the work is late, wall clock
	alertFloor       time.Time // when another process with the uuid wants the alert, wall clock: not before
	alertAfterUnlock bool      // the alert may come after the auto-unlock, which others put off
	progress         string    // the last note
}

// reentry counts the handles of one hold. mu of the first one guards it.
type reentry struct {
	of       *Lock // the handle whose hold this one entered again; nil for that handle itself
	count    int   // handles that entered the hold again and were not unlocked
	released bool  // this handle was unlocked
}

// unlocking is what is known of the end that the holder asks for.
type unlocking struct {
	once     sync.Once
	err      error
	underWay <-chan struct{} // closed when an UnlockWith is over; nil when there was none. mu guards it
}

// Name is the lock's name: that of the record, which is "pool#2" for a share of the lock "pool", see [Semaphore] and
// [Shared].
func (l *Lock) Name() string {
	if l.none() {
		return ""
	}
	return l.held.Lock
}

// UUID identifies this one hold, in the record and in its history.
func (l *Lock) UUID() string {
	if l.none() {
		return ""
	}
	return l.held.UUID
}

// Token is the fencing token of this hold. It is greater than that of every earlier hold of any lock in the same etcd,
// and does not change while the lock is held. A resource that refuses tokens smaller than the greatest it has seen is
// safe from holders that do not know yet that they lost the lock. Without a hold it is 0, which is no token.
func (l *Lock) Token() int64 {
	if l.none() {
		return 0
	}
	token := l.held.Token
	if l.forGroup {
		for _, one := range l.group.locks {
			token = max(token, one.held.Token)
		}
	}
	return token
}

// Guard is a compare for the caller's own transactions in the same etcd: they commit only while this hold stands. It
// never holds for a handle that stands for several locks, which one compare cannot fence: use [Lock.Guards].
func (l *Lock) Guard() clientv3.Cmp {
	switch {
	case l.none():
		return never()
	case l.forGroup:
		l.c.log(slog.LevelWarn, "Guard fences one lock, and these are several: use Guards", l.about()...)
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

// Context ends when this process must no longer act as the holder. context.Cause says why: a [*LostError],
// [ErrUnlocked], [ErrDetached] or [ErrClosed]. It carries the handle, see [FromContext], and nothing of the context
// that took the lock, whose deadline is about the wait.
func (l *Lock) Context() context.Context {
	if l.none() {
		return noContext()
	}
	return l.ctx
}

// Lost is closed when the hold is lost, or may be: then the cause of [Lock.Context] is a [*LostError]. It stays open
// when the holder unlocks.
func (l *Lock) Lost() <-chan struct{} {
	if l.none() {
		return noContext().Done()
	}
	return l.lost
}

// Deadline is when the context ends unless the hold is extended: the auto-unlock less the safety margin, on this
// machine's clock. Without a hold it is the zero time.
func (l *Lock) Deadline() time.Time {
	switch {
	case l.none():
		return time.Time{}
	case l.forGroup:
		return l.group.Deadline()
	case l.reentry.of != nil:
		return l.reentry.of.Deadline()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline.until
}

// about are the attributes of a hold.
func (l *Lock) about(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String("lock", l.held.Lock), slog.String("uuid", l.held.UUID),
		slog.Int64("token", l.held.Token)}, more...)
}
