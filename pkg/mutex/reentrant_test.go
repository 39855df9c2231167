package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestSelfDeadlockErrorSaysWhereTheLockWasTaken(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		nothing := func(context.Context) error { t.Error("it ran"); return nil }
		for about, again := range map[string]func(context.Context) error{
			"Lock":    func(ctx context.Context) error { _, err := locks.Lock(ctx, "a"); return err },
			"TryLock": func(ctx context.Context) error { _, err := locks.TryLock(ctx, "a"); return err },
			"Do":      func(ctx context.Context) error { return locks.Do(ctx, "a", nothing) },
			"Do within the hold of another lock": func(ctx context.Context) error {
				return locks.Do(ctx, "b", func(ctx context.Context) error { return locks.Do(ctx, "a", nothing) })
			},
		} {
			for _, opts := range [][]mutex.Option{nil, {mutex.BacktraceDepth(0)}} {
				start := time.Now()
				err := locks.Do(context.Background(), "a", again, opts...)
				already, ok := errors.AsType[*mutex.AlreadyHeldError](err)
				if !ok || already.Name != "a" || time.Since(start) > 0 {
					t.Errorf("%s: after %v: %v", about, time.Since(start), err)
					continue
				}
				if !regexp.MustCompile(`/reentrant_test\.go:\d+$`).MatchString(already.CallSite) ||
					!strings.HasPrefix(err.Error(), `lock "a" is already held by you at `+already.CallSite) {
					t.Errorf("%s: %v", about, err)
				}
			}
		}
	})
}

func TestEndedHoldIsNotReentered(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		unlock(t, l)
		after := context.WithoutCancel(l.Context())
		proctest.Must(t, locks.Do(after, "a", func(context.Context) error { return nil }))
	})
}

func TestLastUnlockReleasesAReentrantHold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		outer := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
		inner := enter(t, locks, outer)
		third := enter(t, locks, inner)
		if inner.UUID() != outer.UUID() || third.Token() != outer.Token() || inner == outer ||
			mutex.FromContext(inner.Context()) != inner {
			t.Errorf("the inner handle is of %s, the outer one of %s", inner.UUID(), outer.UUID())
		}
		time.Sleep(30 * time.Minute)
		if err := inner.Alive(context.Background(), "half"); err != nil ||
			time.Until(outer.Deadline()) < 50*time.Minute || inner.Deadline() != outer.Deadline() {
			t.Errorf("alive through the inner handle: %v, outer deadline in %v", err, time.Until(outer.Deadline()))
		}
		for range 2 { // the second call does nothing
			unlock(t, inner)
		}
		if context.Cause(inner.Context()) != mutex.ErrUnlocked || outer.Context().Err() != nil ||
			third.Context().Err() != nil {
			t.Errorf("after the unlock of the inner handle: %v, outer %v, third %v", context.Cause(inner.Context()),
				context.Cause(outer.Context()), context.Cause(third.Context()))
		}
		if err := inner.Alive(context.Background()); !errors.Is(err, mutex.ErrUnlocked) {
			t.Errorf("alive through an unlocked handle: %v", err)
		}
		if err := outer.Unlock(); err != nil || read(t, f.etcd, "a").Token == 0 || outer.Context().Err() != nil {
			t.Errorf("unlock of the outer handle gave the lock back, which another one still has: %v", err)
		}
		if err := third.Unlock(); err != nil || read(t, f.etcd, "a").Token != 0 || outer.Context().Err() == nil {
			t.Errorf("the last unlock: %v", err)
		}
		reader := take(t, locks, "b", mutex.Shared())
		_, err := locks.TryLock(reader.Context(), "b", mutex.Exclusive(), mutex.Reentrant())
		if _, isHeld := errors.AsType[*mutex.AlreadyHeldError](err); !isHeld {
			t.Errorf("a reader became a writer: %v", err)
		}
	})
}

func TestLossOfAHoldReachesInnerHandles(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		outer := take(t, locks, "a")
		inner := enter(t, locks, outer)
		time.Sleep(time.Second)
		f.put("/mutexes/a/uuid", "another")
		<-inner.Lost()
		<-inner.Context().Done()
		if _, isLost := errors.AsType[*mutex.LostError](context.Cause(inner.Context())); !isLost {
			t.Errorf("the cause is %v", context.Cause(inner.Context()))
		}
		if err := inner.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock of the inner handle: %v", err)
		}
		if err := outer.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock of the outer handle: %v", err)
		}
	})
}

func TestRefusalSaysWhereThisProcessTookTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		take(t, locks, "a")
		held := refused(t, locks, "a")
		if !strings.Contains(held.CallSite, "helpers_test.go:") ||
			!strings.Contains(held.Error(), "; this very process took it at "+held.CallSite) {
			t.Errorf("the other goroutine got %v", held)
		}
		if held = refused(t, newClient(t, f.client()), "a"); held.CallSite != "" {
			t.Errorf("another client got %v", held)
		}
	})
}

// invoices is work like in the README: it knows the lock only through its context.
func invoices(ctx context.Context, tenants int) error {
	for i := range tenants {
		time.Sleep(5 * time.Minute)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		mutex.FromContext(ctx).Alive(ctx, fmt.Sprintf("tenant %d of %d", i+1, tenants))
	}
	return nil
}

func TestWorkUnderSeveralLocksExtendsAll(t *testing.T) {
	bubbles(t, map[string]bool{"directly": false, "in an inner Do": true},
		func(t *testing.T, f *fake, locks *mutex.Client, reentrant bool) {
			both := takeAll(t, locks, []string{"b", "a"}, mutex.AutoUnlockAfter(10*time.Minute))
			work := func(ctx context.Context) error { return invoices(ctx, 10) }
			if inner := work; reentrant {
				work = func(ctx context.Context) error { return locks.Do(ctx, "b", inner, mutex.Reentrant()) }
			}
			proctest.Must(t, work(both.Context()))
			for _, lock := range []string{"a", "b"} {
				if doc := read(t, f.etcd, lock); doc.Alive == nil || doc.Alive.Progress != "tenant 10 of 10" {
					t.Errorf("lock %s says %+v", lock, doc.Alive)
				}
			}
		})
}

func TestWorkWithoutALockIsAnError(t *testing.T) {
	const says = "no lock is held here: the context comes neither from Do nor from a lock"
	bubbles(t, map[string]*mutex.Lock{"no hold": mutex.FromContext(context.Background()), "a handle of nobody's": {}},
		func(t *testing.T, f *fake, _ *mutex.Client, l *mutex.Lock) {
			for what, err := range map[string]error{
				"alive":       l.Alive(t.Context(), "1 of 3"),
				"unlock":      l.Unlock(),
				"unlock with": l.UnlockWith(nil),
				"the context": context.Cause(l.Context()),
			} {
				if !errors.Is(err, mutex.ErrNotHeld) || err.Error() != says {
					t.Errorf("%s: %v", what, err)
				}
			}
			<-l.Lost()
			l.Detach()
			if l.FinishRequested() != nil || l.FinishRequest() != nil || l.MoreTime() != nil ||
				l.FinishRequestError() != nil {
				t.Error("it is asked or extended")
			}
			if l.Name() != "" || l.UUID() != "" || l.Token() != 0 || !l.Deadline().IsZero() {
				t.Errorf("it says %q %q %d %v", l.Name(), l.UUID(), l.Token(), l.Deadline())
			}
			if holds(t, f.etcd, l.Guard()) || holds(t, f.etcd, l.Guards()...) {
				t.Error("a write without a lock")
			}
		})
	var locks *mutex.Locks
	if locks.FinishRequested() != nil || locks.FinishRequest() != nil {
		t.Error("no locks are asked")
	}
	if err := errors.Join(locks.Alive(t.Context()), locks.Unlock()); !errors.Is(err, mutex.ErrNotHeld) {
		t.Error(err)
	}
}

func TestHandleOfSeveralLocksRepresentsAll(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		locks := q.locks()
		other := take(t, locks, "b")
		time.AfterFunc(time.Second, func() { unlock(t, other) }) // so that the tokens differ
		both := takeAll(t, locks, []string{"a", "b"})
		l := mutex.FromContext(both.Context())
		tokens := both.Tokens()
		if tokens["a"] >= tokens["b"] || l.Token() != tokens["b"] {
			t.Errorf("the token is %d, those of the locks are %v", l.Token(), tokens)
		}
		if l.Context() != both.Context() || !l.Deadline().Equal(both.Deadline()) {
			t.Error("context or deadline is another")
		}
		if err := l.UnlockWith(nil); err == nil || errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock with: %v", err)
		}
		if holds(t, q.etcd, l.Guard()) || !holds(t, q.etcd, l.Guards()...) || !holds(t, q.etcd, both.All()[1].Guard()) {
			t.Error("one compare fences one lock of two, or all compares do not hold")
		}
		q.delete(layout(t).Record("b"))
		if holds(t, q.etcd, l.Guards()...) {
			t.Error("a write after the loss of one lock")
		}
		if err := l.Alive(t.Context()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive: %v", err)
		}
		<-l.Lost()
		time.Sleep(time.Second)
		if err := both.Alive(t.Context()); !errors.Is(err, mutex.ErrNotHeld) ||
			!read(t, q.etcd, "a").Alive.At.Equal(time.Now()) {
			t.Errorf("the lock that is left was not extended: %v", err)
		}
		if err := l.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock: %v", err)
		}
	})
}
