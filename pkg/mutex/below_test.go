package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// invoices is work as the README shows it: it knows the lock by its context only.
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

func TestWorkBelowSeveralLocksExtendsAll(t *testing.T) {
	bubbles(t, map[string]bool{"directly": false, "in an inner Do": true},
		func(t *testing.T, f *fake, locks *mutex.Client, reentrant bool) {
			both := takeAll(t, locks, []string{"b", "a"}, mutex.AutoUnlockAfter(10*time.Minute))
			work := func(ctx context.Context) error { return invoices(ctx, 10) }
			if inner := work; reentrant {
				work = func(ctx context.Context) error { return locks.Do(ctx, "b", inner, mutex.Reentrant()) }
			}
			if err := work(both.Context()); err != nil {
				t.Errorf("the work ended: %v", err)
			}
			for _, lock := range []string{"a", "b"} {
				if doc := read(t, f.etcd, lock); doc.Alive == nil || doc.Alive.Progress != "tenant 10 of 10" {
					t.Errorf("lock %s says %+v", lock, doc.Alive)
				}
			}
		})
}

func TestWorkWithoutALockIsToldSo(t *testing.T) {
	const says = "no lock is held here: the context is neither that of Do nor that of a lock"
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
			if l.Asked() != nil || l.Request() != nil || l.Extended() != nil || l.AskedError() != nil {
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
	if locks.Asked() != nil || locks.Request() != nil {
		t.Error("no locks are asked")
	}
	if err := errors.Join(locks.Alive(t.Context()), locks.Unlock()); !errors.Is(err, mutex.ErrNotHeld) {
		t.Error(err)
	}
}

func TestHandleOfSeveralLocksStandsForAll(t *testing.T) {
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
			t.Error("a write although one lock was lost")
		}
		if err := l.Alive(t.Context()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive: %v", err)
		}
		<-l.Lost()
		if err := l.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock: %v", err)
		}
	})
}
