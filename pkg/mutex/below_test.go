package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
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
	for name, reentrant := range map[string]bool{"directly": false, "in an inner Do": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
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
				unlock(t, both)
			})
		})
	}
}

func TestWorkWithoutALockIsToldSo(t *testing.T) {
	t.Parallel()
	const says = "no lock is held here: the context is neither that of Do nor that of a lock"
	none := map[string]*mutex.Lock{"no hold": mutex.FromContext(context.Background()), "a handle of nobody's": {}}
	for name, l := range none {
		t.Run(name, func(t *testing.T) {
			for what, err := range map[string]error{
				"alive":       l.Alive(context.Background(), "1 of 3"),
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
			etcd := etcdtest.Shared(t).Client(t)
			for what, guards := range map[string][]clientv3.Cmp{"guard": {l.Guard()}, "guards": l.Guards()} {
				r, err := etcd.Txn(context.Background()).If(guards...).Then(clientv3.OpPut("/mine", "1")).Commit()
				if err != nil || r.Succeeded {
					t.Errorf("%s: a write without a lock: %v, %v", what, r, err)
				}
			}
		})
	}
	var locks *mutex.Locks
	if locks.Asked() != nil || locks.Request() != nil {
		t.Error("no locks are asked")
	}
	if err := errors.Join(locks.Alive(context.Background()), locks.Unlock()); !errors.Is(err, mutex.ErrNotHeld) {
		t.Error(err)
	}
}

// heldTogether has a and b taken one after the other, so that their tokens differ.
func heldTogether(t *testing.T, etcd *clientv3.Client, locks *mutex.Client) *mutex.Locks {
	t.Helper()
	other := take(t, locks, "b")
	go func() {
		for read(t, etcd, "a").Token == 0 {
			time.Sleep(time.Millisecond)
		}
		unlock(t, other)
	}()
	both := takeAll(t, locks, []string{"a", "b"})
	return both
}

func TestHandleOfSeveralLocksStandsForAll(t *testing.T) {
	etcd, locks := onEtcd(t)
	both := heldTogether(t, etcd, locks)
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
	write := func(guards ...clientv3.Cmp) bool {
		r, err := etcd.Txn(context.Background()).If(guards...).Then(clientv3.OpPut("/mine", "1")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r.Succeeded
	}
	if write(l.Guard()) || !write(l.Guards()...) || !write(both.All()[1].Guard()) {
		t.Error("one compare fences one lock of two, or all compares do not hold")
	}
	if _, err := etcd.Delete(context.Background(), layout(t).Record("b"), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if write(l.Guards()...) {
		t.Error("a write although one lock was lost")
	}
	if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
		t.Errorf("alive: %v", err)
	}
	<-l.Lost()
	if err := l.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
		t.Errorf("unlock: %v", err)
	}
	// When a lock that was waited for is lost, its ticket's lease is revoked in the background.
	etcdtest.Eventually(t, "an empty prefix", func() bool { return withoutTombstones(t, etcd) == 0 })
}
