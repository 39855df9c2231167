package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MaxBatch is the maximum number of locks that [Client.TryLockAll] takes: as many as fit into one transaction with
// etcd's default limit of 128 operations.
const MaxBatch = 24

// AttributeTogether is the attribute of a record that names the other locks that were taken with it.
const AttributeTogether = "together_with"

// TryLockAll takes all of the locks in one transaction, or none. If a lock is held, or others queue for it, the error
// is a [*HeldError] about the first such lock. It takes at most [MaxBatch] locks, and accepts [If] and [Then].
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...Option) (*Locks, error) {
	wanted, err := c.newAcquisitions(ctx, names, opts)
	if err == nil && len(wanted) > MaxBatch {
		err = fmt.Errorf("%d locks, at most %d fit into one transaction: use LockAll", len(wanted), MaxBatch)
	}
	if err == nil && anyShared(wanted) {
		err = errors.New("TryLockAll takes plain locks only: use LockAll")
	}
	if err == nil {
		err = checkNotHeld(ctx, wanted)
	}
	if err != nil {
		return nil, withNames(err, names...)
	}
	began := time.Now()
	b := &batch{c: c, wanted: wanted, conditions: wanted[0].set.conditions, writes: wanted[0].set.writes}
	locks, err := b.try(ctx)
	b.notifyAcquired(began, locks, err)
	if err != nil {
		return nil, withNames(err, names...)
	}
	return newLocks(locks), nil
}

// LockAll takes all of the locks, waiting for each as [Client.Lock] does, or none. It takes them sorted by name, so
// callers do not deadlock as long as each takes all that it needs in one call. [ForLock] gives options to one of the
// locks.
//
// It first tries to take all at once, as [Client.TryLockAll] does. If that fails, it keeps the locks that it has while
// it waits for the next: their auto-unlock is extended, their alert is not, and their records show what the caller
// waits for. If one is lost meanwhile, or the wait ends, all are released, and the error is that of the lock that was
// lost or not taken.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*Locks, error) {
	wanted, err := c.newAcquisitions(ctx, names, opts)
	if err == nil && wanted[0].set.conditional() {
		err = errNoConditionsInWait
	}
	if err == nil {
		err = checkNotHeld(ctx, wanted)
	}
	if err != nil {
		return nil, withNames(err, names...)
	}
	var refusal *HeldError
	if len(wanted) <= MaxBatch && !anyShared(wanted) {
		began := time.Now()
		b := &batch{c: c, wanted: wanted}
		locks, err := b.try(ctx)
		if err == nil {
			b.notifyAcquired(began, locks, nil)
			return newLocks(locks), nil
		}
		refusal, _ = errors.AsType[*HeldError](err)
	}
	locks, err := c.lockInOrder(ctx, wanted, opts)
	if err != nil {
		return nil, withNames(refusalOr(ctx, refusal, err), names...)
	}
	return newLocks(locks), nil
}

// refusalOr returns the refusal of the first try, which names a holder, if the wait ended with an err that names none.
func refusalOr(ctx context.Context, refusal *HeldError, err error) error {
	if refusal == nil || ctx.Err() == nil || errors.Is(err, ErrHeld) || errors.Is(err, ErrNotHeld) {
		return err
	}
	refusal.Err = contextError(ctx)
	return refusal
}

// ForLock gives options to one of the locks that [Client.LockAll] takes, in addition to those for all. The call fails
// if it does not take a lock of this name. [If] and [Then] always apply to the whole call.
func ForLock(name string, opts ...Option) Option {
	return func(s *settings) {
		switch before := len(s.conditions) + len(s.writes); {
		case s.forLock:
			s.refuse("ForLock is among the options of ForLock: name each lock once")
		case s.lock == name:
			s.forLock = true
			s.apply(opts)
			s.forLock = false
			if len(s.conditions)+len(s.writes) > before {
				s.refuse("If and Then apply to the whole call, not to ForLock")
			}
		case !slices.Contains(s.together, name):
			s.refuse("there are options for %q, which is not among the locks", name)
		}
	}
}

func (c *Client) newAcquisitions(ctx context.Context, names []string, opts []Option) ([]*acquisition, error) {
	if len(names) == 0 {
		return nil, errors.New("mutex: no lock was named")
	}
	sorted := slices.Sorted(slices.Values(names))
	if n := len(slices.Compact(slices.Clone(sorted))); n < len(sorted) {
		return nil, errors.New("a name is given twice")
	}
	wanted := make([]*acquisition, len(sorted))
	for i, name := range sorted {
		a, _, err := c.newAcquisition(ctx, name, optionsForOne(sorted, i, opts))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		wanted[i] = a
	}
	return wanted, nil
}

func anyShared(wanted []*acquisition) bool {
	return slices.ContainsFunc(wanted, func(a *acquisition) bool { return a.set.kind.shared() })
}

// optionsForOne returns the options for one of several locks, given those of the call.
func optionsForOne(names []string, i int, opts []Option) []Option {
	all := func(s *settings) { s.together = names }
	return slices.Concat([]Option{all}, opts, []Option{heldWith(names, i)})
}

// heldWith names, in the record of one lock, the others that were taken with it.
func heldWith(names []string, i int) Option {
	if len(names) == 1 {
		return nil
	}
	others := slices.Delete(slices.Clone(names), i, i+1)
	text := others[0]
	for n, name := range others[1:] {
		more := fmt.Sprintf(" and %d more", len(others)-1-n)
		if len(text)+len(", ")+len(name)+len(more) > metadata.MaxTextBytes {
			text += more
			break
		}
		text += ", " + name
	}
	return Attribute(AttributeTogether, text)
}

func (c *Client) lockInOrder(ctx context.Context, wanted []*acquisition, opts []Option) (locks []*Lock, err error) {
	caller := ctx
	ctx, cancel := context.WithCancelCause(caller)
	var heartbeats sync.WaitGroup
	defer func() {
		cancel(nil)
		heartbeats.Wait()
		if err == nil {
			// The durations count from now. Each hold is confirmed after the last lock was taken, so any later holder
			// of one has a greater token than all of these.
			err = each(locks, func(l *Lock) error { return l.Alive(caller) })
		}
		if err != nil {
			released := c.giveBack(caller, locks)
			locks = nil
			if !errors.Is(err, ErrNotHeld) { // else err reports the loss already
				err = errors.Join(err, released)
			}
		}
	}()
	names := make([]string, len(wanted))
	for i, a := range wanted {
		names[i] = a.lock
	}
	for i, name := range names {
		for _, l := range locks {
			l.mu.Lock()
			l.extension.progress = "waits for lock " + strconv.Quote(name) // in its next extension
			l.mu.Unlock()
		}
		l, err := c.Lock(ctx, name, optionsForOne(names, i, opts)...)
		if err != nil {
			if lost, isLost := context.Cause(ctx).(*LostError); isLost {
				err = lost // it says more than that the wait is over
			}
			return locks, err
		}
		locks = append(locks, l)
		context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
		if l.set.maximumHold == 0 { // else it has a heartbeat of its own
			heartbeats.Go(func() { l.sendHeartbeats(ctx) })
		}
	}
	return locks, nil
}

// giveBack releases the locks. Soon after the end of ctx, that continues in the background.
func (c *Client) giveBack(ctx context.Context, locks []*Lock) error {
	released := make(chan error, 1)
	if !c.background.spawn(func() { released <- unlockAll(locks) }) { // the client is closed
		return unlockAll(locks)
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(explainTimeout, func() { close(over) }) })
	defer stop()
	select {
	case err := <-released:
		return err
	case <-over:
		return nil
	}
}

func newLocks(locks []*Lock) *Locks {
	if len(locks) == 1 {
		return &Locks{locks: locks, all: locks[0]}
	}
	g := &Locks{locks: locks}
	g.finishRequested = sync.OnceValue(g.anyFinishRequested)
	outer := locks[0].outer
	for _, l := range slices.Backward(locks) {
		l.outer, outer = outer, l // the holder of one holds them all
		l.group = g
	}
	g.all = locks[0].cloneHandle(context.Background(), locks[0].outer)
	g.all.forGroup = true
	g.all.lost = make(chan struct{})
	endLost := sync.OnceFunc(func() { close(g.all.lost) })
	for _, l := range locks {
		g.all.held.Token = max(g.all.held.Token, l.held.Token)
		context.AfterFunc(l.ctx, func() {
			cause := context.Cause(l.ctx)
			g.all.cancel(cause)
			if _, isLost := cause.(*LostError); isLost {
				endLost()
			}
		})
	}
	return g
}

// notifyAcquired calls the hook for each lock that was taken, or for the one that prevented it.
func (b *batch) notifyAcquired(began time.Time, locks []*Lock, err error) {
	for i, l := range locks {
		b.wanted[i].notifyAcquired(began, l, nil)
	}
	if err == nil {
		return
	}
	failed := b.wanted[0]
	if held, isHeld := errors.AsType[*HeldError](err); isHeld {
		for _, a := range b.wanted {
			if a.lock == held.Name {
				failed = a
			}
		}
	}
	failed.notifyAcquired(began, nil, err)
}

// withNames adds the names of the locks to an error that does not have any.
func withNames(err error, names ...string) error {
	if _, isHeld := errors.AsType[*HeldError](err); err == nil || isHeld || errors.Is(err, ErrCondition) ||
		errors.Is(err, ErrNotHeld) || len(names) == 0 {
		return err
	}
	return fmt.Errorf("lock %s: %w", quoted(names), err)
}

// quoted returns `"a", "b" and 3 more`.
func quoted(names []string) string {
	const maxNames = 5
	var shown []string
	for _, name := range names[:min(len(names), maxNames)] {
		shown = append(shown, strconv.Quote(clip(name)))
	}
	line := strings.Join(shown, ", ")
	if more := len(names) - maxNames; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}
