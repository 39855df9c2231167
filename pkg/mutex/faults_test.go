package mutex_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestNothingIsLeftRunning(t *testing.T) {
	etcd := etcdtest.Cluster(t, 1).Client(t) // its own goroutines are in another process
	watches := spyOnWatches(etcd)
	etcdtest.Count(t, etcd, mutex.DefaultPrefix) // connects
	keepAlives(t, etcd)
	before := goleak.IgnoreCurrent()
	locks, err := mutex.New(etcd, mutex.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := take(t, locks, "kept", mutex.Heartbeat(time.Hour))
	<-watches
	for _, o := range []mutex.Option{nil, mutex.WithoutQueue()} {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		if _, err := locks.Lock(ctx, "kept", o); err == nil {
			t.Error("two hold the lock")
		}
		cancel()
	}
	lost := take(t, locks, "lost")
	<-watches
	etcd.Delete(context.Background(), "/mutexes/lost/", clientv3.WithPrefix())
	<-lost.Lost()
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	<-kept.Context().Done()
	nothingLeft(t, before)
}

// keepAlives makes etcd's client start its keep-alive loop, which runs until the client is closed.
func keepAlives(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lease, err := etcd.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := etcd.KeepAlive(ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-alive
	if _, err := etcd.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
}

// nothingLeft waits until only the goroutines from before are left.
func nothingLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	err := goleak.Find(before)
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find(before)
	}
	if err != nil {
		t.Error(err)
	}
}
