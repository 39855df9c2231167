package mutex_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestWhoAsksForItsOwnLockIsToldWhereItTookIt(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		nothing := func(context.Context) error { t.Error("it ran"); return nil }
		for about, again := range map[string]func(context.Context) error{
			"Lock":    func(ctx context.Context) error { _, err := locks.Lock(ctx, "a"); return err },
			"TryLock": func(ctx context.Context) error { _, err := locks.TryLock(ctx, "a"); return err },
			"Do":      func(ctx context.Context) error { return locks.Do(ctx, "a", nothing) },
			"Do within the hold of another lock": func(ctx context.Context) error {
				return locks.Do(ctx, "b", func(ctx context.Context) error { return locks.Do(ctx, "a", nothing) })
			},
			"Lock under the context of another handle": func(ctx context.Context) error {
				b, err := locks.Lock(ctx, "b")
				if err != nil {
					return err
				}
				defer b.Unlock()
				return locks.Do(b.Context(), "a", nothing)
			},
		} {
			for _, opts := range [][]mutex.Option{nil, {mutex.BacktraceDepth(0)}} {
				start := time.Now()
				err := locks.Do(context.Background(), "a", again, opts...)
				already, ok := errors.AsType[*mutex.AlreadyHeldError](err)
				if !ok || already.Lock != "a" || time.Since(start) > 0 {
					t.Errorf("%s: after %v: %v", about, time.Since(start), err)
					continue
				}
				if !regexp.MustCompile(`/reentrant_test\.go:\d+$`).MatchString(already.Where) ||
					!strings.HasPrefix(err.Error(), `lock "a" is already held by you at `+already.Where) {
					t.Errorf("%s: %v", about, err)
				}
			}
		}
	})
}

func TestHoldThatEndedIsNoneOfTheCallers(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		unlock(t, l)
		after := context.WithoutCancel(l.Context())
		if err := locks.Do(after, "a", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestReentrantHoldIsGivenBackByTheLastUnlock(t *testing.T) {
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

func TestInnerHandleIsLostWithItsHold(t *testing.T) {
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

func TestRefusalTellsWhereThisVeryProcessTookTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		take(t, locks, "a")
		_, err := locks.TryLock(context.Background(), "a")
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || !strings.Contains(held.Where, "helpers_test.go:") || !strings.Contains(err.Error(),
			"; this very process took it at "+held.Where) {
			t.Errorf("the other goroutine got %v", err)
		}
		_, err = newClient(t, f.client()).TryLock(context.Background(), "a")
		if held, ok = errors.AsType[*mutex.HeldError](err); !ok || held.Where != "" {
			t.Errorf("another client got %v", err)
		}
	})
}
