package mutex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Locker returns the lock as a [sync.Locker], for code that takes one and cannot be changed. Prefer [Client.Do]: code
// under a Locker does not learn that the lock was lost.
//
// Lock waits as [Client.Lock] does, through outages of etcd, and returns only when the lock is held. If it cannot be
// had, because ctx ended, the client was closed or etcd refused, Lock panics with an error that wraps the reason: to
// return would run the code without the lock, and to block would hide why it does not run. Unlock panics if the lock is
// not locked. Other errors of giving it back are logged, and the release goes on in the background.
//
// lost is called, once for each Lock, when the hold ended or may have while the code runs, and with what error: usually
// a [*LostError]. Another may hold the lock from then on. Nothing else can stop the code, so lost should: by ending the
// process, or by closing what the code writes to. It must not be nil. If the loss is found only by Unlock, lost is
// called before Unlock returns.
//
// Nobody calls [Lock.Alive] for such code: choose an [AutoUnlockAfter] longer than it takes, or a [Heartbeat].
//
// Within the process the Locker behaves like a [sync.Mutex]: one goroutine has it at a time, even after a loss, until
// its Unlock. So it takes one share of a semaphore or read-write lock at most; make a Locker for each goroutine there.
func (c *Client) Locker(ctx context.Context, name string, lost func(error), opts ...Option) (sync.Locker, error) {
	if lost == nil {
		return nil, errors.New("mutex: a Locker needs a function to call when the lock is lost")
	}
	if _, err := c.Draft(name, opts...); err != nil {
		return nil, err
	}
	if set, _, err := c.draft(name, opts); err != nil || set.conditional() {
		return nil, cmp.Or(err, errors.New("mutex: a Locker waits for the lock, so it takes no If and no Then"))
	}
	return &locker{c: c, ctx: ctx, name: name, lost: lost, opts: opts, turn: make(chan struct{}, 1)}, nil
}

type locker struct {
	c    *Client
	ctx  context.Context
	name string
	lost func(error)
	opts []Option

	turn chan struct{} // has an element from Lock to Unlock
	hold atomic.Pointer[Lock]
}

// Lock takes the lock or panics.
func (k *locker) Lock() {
	select {
	case k.turn <- struct{}{}:
	case <-k.ctx.Done():
		k.panic(context.Cause(k.ctx))
	}
	l, err := k.c.Lock(k.ctx, k.name, k.opts...)
	if err != nil {
		<-k.turn
		k.panic(err)
	}
	context.AfterFunc(l.Context(), func() {
		if cause := context.Cause(l.Context()); cause != ErrUnlocked {
			k.lost(cause)
		}
	})
	k.hold.Store(l)
}

// Unlock gives the lock back.
func (k *locker) Unlock() {
	l := k.hold.Swap(nil)
	if l == nil {
		k.panic(errors.New("unlock of a Locker that is not locked"))
	}
	defer func() { <-k.turn }()
	err := l.Unlock()
	switch noticed := context.Cause(l.Context()) != ErrUnlocked; {
	case err == nil || noticed:
	case errors.Is(err, ErrNotHeld):
		k.lost(err)
	default:
		k.c.log(slog.LevelWarn, "a Locker was not given back yet", l.about(slog.Any("error", err))...)
	}
}

func (k *locker) panic(err error) { panic(fmt.Errorf("mutex: Locker of %q: %w", k.name, err)) }
