package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// TestAPermitOfADeadHolderGoesToWhoWaits is a semaphore under the eyes of an unlocker, a dashboard and the command
// line, which know nothing of semaphores: each permit is a lock to them.
func TestAPermitOfADeadHolderGoesToWhoWaits(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	u := startUnlocker(t, []string{etcd.Endpoint()}).ready(t)
	dead, err := mutex.New(c, mutex.Options{Owner: "dead"})
	if err != nil {
		t.Fatal(err)
	}
	alive, err := mutex.New(c, mutex.Options{Owner: "alive"})
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	pool := mutex.Semaphore(2)
	hold := func(locks *mutex.Client, opts ...mutex.Option) *mutex.Lock {
		t.Helper()
		l, err := locks.TryLock(t.Context(), "pool", append(opts, pool)...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	stale := hold(dead, mutex.AlertAfter(500*time.Millisecond), mutex.AutoUnlockAfter(2*time.Second))
	good := hold(alive)
	if err := dead.Close(); err != nil { // what it held stays held, as when a process dies
		t.Fatal(err)
	}
	shows(t, u.addr, 1, "unlocker_locks", "state", "alerting")
	if _, err := scrape(t, u.addr).value("unlocker_lock_alert_at_timestamp_seconds", "lock", "pool#1", "owner",
		"dead"); err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), proctest.Timeout)
	defer cancel()
	next, err := alive.Lock(ctx, "pool", pool)
	if err != nil {
		t.Fatal(err)
	}
	if next.Name() != "pool#1" || next.Token() <= stale.Token() {
		t.Errorf("the next one got %s, token %d after %d", next.Name(), next.Token(), stale.Token())
	}
	if e := endings(t, c)[stale.UUID()]; e.Ended != metadata.EndedAutoUnlocked || e.Lock != "pool#1" ||
		e.Attributes["kind"] != "semaphore" {
		t.Errorf("the history says %+v", e)
	}

	// A person takes the other permit away, and the writer who waits for all of them gets in when the last is given
	// back.
	got := make(chan error, 1)
	go func() {
		l, err := alive.Lock(ctx, "pool", mutex.Exclusive())
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	o := command(t, "mutexctl", "force-unlock", "pool#2", "--uuid="+good.UUID(), "--yes", "--reason=a test of permits",
		"--etcd.endpoints="+etcd.Endpoint())
	if o.Code != 0 {
		t.Fatalf("mutexctl force-unlock: %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	<-good.Lost()
	if err := good.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
		t.Errorf("unlock of the permit that was taken away: %v", err)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the writer: %v", err)
	}
}
