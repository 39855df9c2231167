package mutex_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// After a long outage gRPC waits for minutes before it tries to connect again, and unlockers wait for the holder for
// half a minute.
func TestHolderComesBackAtOnceAfterALongOutage(t *testing.T) {
	server := etcdtest.Start(t)
	patient := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour},
		MinConnectTimeout: time.Second}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server.Endpoint()}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(patient)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	locks := newClient(t, etcd, mutex.Options{AttemptTimeout: 300 * time.Millisecond})
	l := take(t, locks, "a")
	server.Stop()
	etcdtest.Eventually(t, "an attempt to connect that fails", func() bool {
		etcd.ActiveConnection().Connect()
		return etcd.ActiveConnection().GetState() == connectivity.TransientFailure
	})
	server.Restart(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := l.Alive(ctx); err != nil {
		t.Error(err)
	}
	unlock(t, l)
}
