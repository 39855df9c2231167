package e2e

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// A program waits, its worker hangs and its lease is renewed nevertheless. When the holder releases the lock, nobody
// takes it: that is alarming after half a minute, and no longer when the program goes on.
func TestThatNobodyTakesALockIsToldUntilSomebodyDoes(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	u := startUnlocker(t, []string{etcd.Endpoint()})
	holder, err := mutex.New(client, mutex.Options{Owner: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	held, err := holder.Lock(t.Context(), "orders/settle", mutex.AlertAfter(time.Hour),
		mutex.AutoUnlockAfter(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	waiter := start(t, nil, "mutexctl", "run", "orders/settle", "--owner=search", "--etcd.endpoints="+etcd.Endpoint(),
		"--", "true")
	renew(t, client, "/mutexes/.queue/orders%2Fsettle/")
	if err := waiter.Pause(); err != nil {
		t.Fatal(err)
	}
	shows(t, u.addr, 1, "unlocker_waiters")
	released := time.Now() // or a moment later
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}

	const since = "unlocker_lock_unclaimed_since_timestamp_seconds"
	shows(t, u.addr, 0, "unlocker_unclaimed_locks")
	hides(t, u.addr, since)
	var at float64
	proctest.Eventually(t, "the lock that nobody takes is told", func() error {
		at, err = scrape(t, u.addr).value(since, "lock", "orders/settle", "owner", "search")
		return err
	})
	if told := time.Since(released); told < unclaimed.After {
		t.Errorf("told after %v", told)
	}
	if off := time.UnixMicro(int64(at * 1e6)).Sub(released); off < -time.Minute || off > proctest.Timeout {
		t.Errorf("it is said to be free since %v after its release", off)
	}
	shows(t, u.addr, 1, "unlocker_unclaimed_locks")

	waiter.Resume()
	if code := waiter.Wait(t); code != 0 {
		t.Errorf("the waiter ended with %d: %s", code, waiter.Output())
	}
	shows(t, u.addr, 0, "unlocker_unclaimed_locks")
	hides(t, u.addr, since)
}

// renew renews the lease of the ticket in the queue until the test ends.
func renew(t *testing.T, etcd *clientv3.Client, queue string) {
	t.Helper()
	proctest.Eventually(t, "somebody waits", func() error {
		got, err := etcd.Get(t.Context(), queue, clientv3.WithPrefix())
		if err != nil || len(got.Kvs) < 2 {
			return fmt.Errorf("%v, %w", got, err)
		}
		alive, err := etcd.KeepAlive(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease))
		if err == nil {
			go func() {
				for range alive {
				}
			}()
		}
		return err
	})
}
