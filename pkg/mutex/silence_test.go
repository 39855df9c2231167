package mutex_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
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

// lines are what a client logs.
type lines struct {
	mu   sync.Mutex
	text []string
}

// options have a client log there.
func (l *lines) options() mutex.Options {
	return mutex.Options{Logger: slog.New(slog.NewTextHandler(l, nil))}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(p))
	return len(p), nil
}

// with are the lines that contain something.
func (l *lines) with(what string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.text), func(line string) bool { return !strings.Contains(line, what) })
}

func TestSilentEtcdIsToldOnce(t *testing.T) {
	var log lines
	bubbleWith(t, log.options(), func(t *testing.T, f *fake, locks *mutex.Client) {
		for round := range 2 {
			f.away.Store(true)
			got := waits(t, locks)
			for _, later := range []time.Duration{8 * time.Second, 5 * time.Minute} {
				time.Sleep(later)
				if told := log.with("etcd does not answer"); len(told) != round+1 {
					t.Errorf("after %v the log says: %q", later, told)
				}
			}
			f.away.Store(false)
			unlock(t, <-got)
			if told := log.with("etcd answers again"); len(told) != round+1 {
				t.Errorf("the log says: %q", told)
			}
		}
	})
}

func TestSilentConnectionIsToldWithItsRemedy(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	var log lines
	o := log.options()
	o.AttemptTimeout = 500 * time.Millisecond
	l := take(t, newClient(t, server.Through(t, proxy.Endpoint()), o), "a")
	proxy.Stall()
	told := make(chan error)
	go func() { told <- l.Alive(context.Background()) }()
	etcdtest.Eventually(t, "the line", func() bool {
		told := log.with("on a connection that is open; without DialKeepAliveTime")
		return len(told) == 1 && strings.Contains(told[0], "endpoints=")
	})
	proxy.Heal()
	<-told
}

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
	t.Cleanup(func() { etcd.Close() })
	locks := newClient(t, etcd, mutex.Options{AttemptTimeout: 300 * time.Millisecond})
	l := take(t, locks, "a")
	server.Stop()
	etcdtest.Eventually(t, "an attempt to connect that fails", func() bool {
		etcd.ActiveConnection().Connect()
		return etcd.ActiveConnection().GetState() == connectivity.TransientFailure
	})
	server.Restart(t)
	if err := l.Alive(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
}
