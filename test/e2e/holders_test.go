package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// holder starts a separate client, like another process, that holds a lock for a long time.
func holder(t *testing.T, etcd *clientv3.Client, owner, lock string) (*mutex.Client, *mutex.Lock) {
	t.Helper()
	c, err := mutex.New(etcd, mutex.Options{Owner: owner})
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	l, err := c.TryLock(t.Context(), lock, mutex.AlertAfter(time.Hour), mutex.AutoUnlockAfter(2*time.Hour))
	proctest.Must(t, err)
	return c, l
}

// wait makes a client wait for a lock until the context ends.
func wait(ctx context.Context, t *testing.T, c *mutex.Client, lock string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Lock(ctx, lock, mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(2*time.Minute))
		ended <- err
	}()
	return ended
}

// Two holders that wait for each other are counted and named until one of them gives up.
func TestDeadlockIsReported(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	u := startUnlocker(t, []string{etcd.Endpoint()})
	billing, _ := holder(t, etcd.Client(t), "billing", "stock")
	search, _ := holder(t, etcd.Client(t), "search", "orders")
	impatient, giveUp := context.WithCancel(t.Context())
	patient, end := context.WithCancel(t.Context())
	host, err := os.Hostname()
	proctest.Must(t, err)
	gaveUp := wait(impatient, t, billing, "orders")
	waits := wait(patient, t, search, "stock")

	since := fmt.Sprintf(`unlocker_deadlock_since_timestamp_seconds{holders="billing on %s:%d, search on %[1]s:%[2]d",`+
		`locks="orders, stock"}`, host, os.Getpid())
	shows(t, u.addr, 1, "unlocker_deadlocks")
	at, err := proctest.Metric(u.addr, since)
	if err != nil || time.Since(time.UnixMicro(int64(at*1e6))) > proctest.Timeout {
		t.Errorf("it is since %v, %v", at, err)
	}
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter that gave up got %v", err)
	}
	shows(t, u.addr, 0, "unlocker_deadlocks")
	hides(t, u.addr, since)
	select {
	case err := <-waits:
		t.Errorf("something ended the wait of the other one: %v", err)
	default:
	}
	end()
	<-waits
}
