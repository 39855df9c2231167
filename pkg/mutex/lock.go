package mutex

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Lock is a lock that this process holds, until [Lock.Unlock] or until it is lost. It is safe for concurrent use.
type Lock struct {
	c      *Client
	set    settings
	wanted string // the name that the caller gave; that of the hold is another if it is a share
	held   locktxn.Hold

	callSite string // that took it
	began    moment // before the acquisition was sent; its wall clock is the record's

	outer    *Lock  // the innermost hold under which it was taken
	group    *Locks // the locks that were taken together with this one; nil when there are none
	forGroup bool   // this is the handle of all of the group
	origin   origin

	ctx           context.Context
	cancel        context.CancelCauseFunc
	lost          chan struct{}
	background    context.Context // of the watch and the heartbeat: ends with the handle
	endBackground context.CancelFunc
	stopOnClose   func() bool // ends its wait for the end of the client's context

	mu        sync.Mutex
	cause     error // why the handle ended; nil while it is held
	deadline  deadline
	extension extension
	inbox     *inbox // nil until there is something in it, or the holder asks
	reentry   reentry
	unlocking unlocking
}

// origin is how a handle got its hold, and therefore what else has to end with it.
type origin struct {
	lease   *lease // of the ticket, as long as the hold lasts; nil if the lock was not queued for
	adopted bool   // another handle took it and may have a ticket
	// detached means that the end of this process does not prove the end of the hold.
	detached bool

	// cancel prevents the commit of acquisition requests that may still be in flight; nil if there are none.
	cancel func(context.Context) error
}

// deadline is when the handle ends by this machine's clock. mu guards it.
type deadline struct {
	until    time.Time   // monotonic
	counted  moment      // when it began to count
	recorded time.Time   // the auto-unlock in the record that it follows from, wall clock; zero if unknown
	timer    *time.Timer // runs onTimer: first to start the watch of a hold that is not short, then at the deadline
	watched  bool        // the watch was started
}

// extension is what a handle knows of the deadlines and progress in its record. mu guards the fields below mutex.
type extension struct {
	mutex             chan struct{} // held by whoever extends
	lastAliveRevision int64         // guarded by mutex: of the last alive field known here; 0 for none

	alertTarget      time.Time // when the work is late, wall clock
	alertFloor       time.Time // the earliest alert that another process with the uuid wants, wall clock
	alertAfterUnlock bool      // the alert may come after the auto-unlock, which other processes extend
	progress         string    // the last note
}

// inbox has what others wrote into the record for its holder: a request to finish, and more time. mu of its handle
// guards it.
type inbox struct {
	request            *metadata.FinishRequest // the latest; nil when there is none
	requestRevision    int64                   // its revision
	finishRequested    context.Context         // ends with the first request; nil until the holder asks for it
	endFinishRequested context.CancelFunc      // ends finishRequested

	moreTime         *metadata.MoreTime // the latest; nil when there is none
	moreTimeRevision int64              // its revision
	alertAt          time.Time          // the alert that it granted, wall clock; zero if unknown

	delivering              bool // a goroutine is informing the holder
	newRequest, newMoreTime bool // of which the holder was not informed
}

// reentry counts the handles of one hold. mu of the first one guards it.
type reentry struct {
	of       *Lock // the handle whose hold this one entered again; nil for that handle itself
	count    int   // handles that entered the hold again and were not unlocked
	released bool  // this handle was unlocked
}

// unlocking is the state of the holder's release.
type unlocking struct {
	once     sync.Once
	err      error
	underWay <-chan struct{} // closed when an UnlockWith is over; nil when there was none. mu guards it
}

// Name returns the name of the lock's record. It is "pool#2" for a share of the lock "pool", see [Semaphore] and
// [Shared].
func (l *Lock) Name() string { return l.hold().Lock }

// UUID returns the UUID of this hold, which identifies it in the record and in the history.
func (l *Lock) UUID() string { return l.hold().UUID }

// Token returns the fencing token of this hold. It is greater than that of every earlier hold of any lock in the same
// etcd, and does not change while the lock is held. Without a hold it is 0, which is not a valid token.
func (l *Lock) Token() int64 { return l.hold().Token }

// hold returns what the handle holds; zero without a hold.
func (l *Lock) hold() locktxn.Hold {
	if l.hasNoHold() {
		return locktxn.Hold{}
	}
	return l.held
}

// Guard returns a compare for the caller's own transactions in the same etcd: they commit only while the lock is held.
// It never holds for the handle of several locks, which one compare cannot fence: use [Lock.Guards].
func (l *Lock) Guard() clientv3.Cmp {
	switch {
	case l.hasNoHold():
		return never()
	case l.forGroup:
		l.c.log(slog.LevelWarn, "Guard fences one lock, this handle is of several: use Guards", l.logAttributes()...)
		return never()
	}
	return locktxn.Guard(l.c.layout, l.held)
}

// Guards returns compares for the caller's own transactions in the same etcd: they commit only while the lock, and
// every lock that was taken together with it, is held.
func (l *Lock) Guards() []clientv3.Cmp {
	if l.hasNoHold() || l.group == nil {
		return []clientv3.Cmp{l.Guard()}
	}
	guards := make([]clientv3.Cmp, len(l.group.locks))
	for i, one := range l.group.locks {
		guards[i] = one.Guard()
	}
	return guards
}

// Context returns a context that ends when this process must no longer act as the holder. context.Cause says why: a
// [*LostError], [ErrUnlocked], [ErrDetached] or [ErrClosed]. It carries the handle, see [FromContext], but nothing of
// the context that the lock was taken with, which is for the wait.
func (l *Lock) Context() context.Context {
	if l.hasNoHold() {
		return noContext()
	}
	return l.ctx
}

// Lost returns a channel that is closed when the lock is lost, or may be. It stays open when the holder unlocks.
func (l *Lock) Lost() <-chan struct{} {
	if l.hasNoHold() {
		return noContext().Done()
	}
	return l.lost
}

// Deadline returns when the context ends unless [Lock.Alive] extends it: the auto-unlock less the safety margin, on
// this machine's clock. Without a hold it is the zero time.
func (l *Lock) Deadline() time.Time {
	if l.hasNoHold() {
		return time.Time{}
	}
	holds := []*Lock{l.root()}
	if l.forGroup {
		holds = l.group.locks
	}
	var first time.Time
	for _, hold := range holds {
		hold.mu.Lock()
		first = protocol.Earlier(first, hold.deadline.until)
		hold.mu.Unlock()
	}
	return first
}

func (l *Lock) logAttributes(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String("lock", l.held.Lock), slog.String("uuid", l.held.UUID),
		slog.Int64("token", l.held.Token)}, more...)
}

// root returns the handle that the acquisition made.
func (l *Lock) root() *Lock {
	if l.reentry.of != nil {
		return l.reentry.of
	}
	return l
}

// hasNoHold reports whether the handle is nil, or was not made by this package.
func (l *Lock) hasNoHold() bool { return l == nil || l.c == nil }

// noContext returns a context that has ended, that of a handle without a hold.
func noContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNoHold)
	return ctx
}

func never() clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision("\x00"), "<", 0) }

type handleKey struct{}

// FromContext returns the handle of the innermost lock under which ctx was made, by [Client.Do], [Lock.WorkContext],
// [Lock.Context] or [Locks.Context]. Without one it is nil. All methods of a nil handle can be called: those with an
// error return an [ErrNotHeld].
//
// Under [Client.LockAll] and [Client.TryLockAll] it is the handle of all of the locks: Alive and Unlock are for all,
// Context and Lost end with the first that is lost, Deadline is the earliest, and Token is the greatest. Name and UUID
// are those of the first lock. Fence writes in the same etcd with [Lock.Guards].
func FromContext(ctx context.Context) *Lock {
	l, _ := ctx.Value(handleKey{}).(*Lock)
	return l
}

// WorkContext returns a context for work under the lock: it ends with ctx, or when the lock is lost, with the
// [*LostError] as its cause, and [FromContext] finds the handle in it. Call done when the work is over.
func (l *Lock) WorkContext(ctx context.Context) (work context.Context, done context.CancelFunc) {
	held := l.Context()
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, handleKey{}, l))
	detach := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() { detach(); cancel(nil) }
}

// Locks has the handles of several locks that were taken together, by [Client.LockAll] or [Client.TryLockAll].
type Locks struct {
	locks []*Lock // by name
	all   *Lock   // the handle of all of them; that of the only one

	finishRequested func() <-chan struct{} // anyFinishRequested, once
}

// All returns the handles of the locks, sorted by name.
func (g *Locks) All() []*Lock { return slices.Clone(g.locks) }

// Tokens returns the fencing token of each lock, by [Lock.Name].
func (g *Locks) Tokens() map[string]int64 {
	tokens := map[string]int64{}
	for _, l := range g.locks {
		tokens[l.Name()] = l.Token()
	}
	return tokens
}

func (g *Locks) handle() *Lock {
	if g == nil {
		return nil
	}
	return g.all
}

// Guards returns compares for the caller's own transactions in the same etcd: they commit only while all locks are
// held.
func (g *Locks) Guards() []clientv3.Cmp { return g.handle().Guards() }

// Context returns a context that ends as soon as one of the locks is lost or released, with the cause of that lock's
// [Lock.Context]. [FromContext] finds a handle of all of them in it.
func (g *Locks) Context() context.Context { return g.handle().Context() }

// Deadline returns when the context ends unless [Locks.Alive] extends all locks.
func (g *Locks) Deadline() time.Time { return g.handle().Deadline() }

// Alive extends all locks as [Lock.Alive] does. The error joins those of the locks.
func (g *Locks) Alive(ctx context.Context, progress ...string) error {
	return g.handle().Alive(ctx, progress...)
}

// AliveFor extends all locks as [Lock.AliveFor] does. The error joins those of the locks.
func (g *Locks) AliveFor(ctx context.Context, alertAfter, autoUnlockAfter time.Duration, progress ...string) error {
	return g.handle().AliveFor(ctx, alertAfter, autoUnlockAfter, progress...)
}

// FinishRequested is [Lock.FinishRequested] for any of the locks.
func (g *Locks) FinishRequested() <-chan struct{} { return g.handle().FinishRequested() }

// FinishRequest returns the latest [Lock.FinishRequest] of any of the locks.
func (g *Locks) FinishRequest() *metadata.FinishRequest { return g.handle().FinishRequest() }

// Unlock releases all locks, even if some were lost. The error joins those of the locks.
func (g *Locks) Unlock() error { return g.handle().Unlock() }

// each calls f for all locks at once, so that it waits only once for an etcd that does not answer.
func each(locks []*Lock, f func(*Lock) error) error {
	if len(locks) == 1 {
		return f(locks[0])
	}
	errs := make([]error, len(locks))
	var all sync.WaitGroup
	for i, l := range locks {
		all.Go(func() { errs[i] = f(l) })
	}
	all.Wait()
	return errors.Join(errs...)
}
