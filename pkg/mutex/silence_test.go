package mutex_test

import (
	"context"
	"log/slog"
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

// lines are what a client logs, with the time of each.
type lines struct {
	mu   sync.Mutex
	text []string
	at   []time.Time
}

// options have a client log there.
func (l *lines) options() mutex.Options {
	return mutex.Options{Logger: slog.New(slog.NewTextHandler(l, nil))}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.at = append(l.text, string(p)), append(l.at, time.Now())
	return len(p), nil
}

// with are the lines that contain something.
func (l *lines) with(what string) (found []string, first time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, text := range l.text {
		if strings.Contains(text, what) {
			if found = append(found, text); len(found) == 1 {
				first = l.at[i]
			}
		}
	}
	return found, first
}

func TestSilentEtcdIsToldOnce(t *testing.T) {
	var log lines
	bubbleWith(t, log.options(), func(t *testing.T, f *fake, locks *mutex.Client) {
		for range 2 {
			log.set()
			f.away.Store(true)
			began := time.Now()
			got := waits(t, locks)
			time.Sleep(5 * time.Minute)
			told, at := log.with("etcd does not answer")
			if len(told) != 1 || at.Sub(began) > 8*time.Second {
				t.Errorf("after %v the log says: %q", at.Sub(began), told)
			}
			f.away.Store(false)
			if err := (<-got).Unlock(); err != nil {
				t.Error(err)
			}
			if told, _ := log.with("etcd answers again"); len(told) != 1 {
				t.Errorf("the log says: %q", told)
			}
		}
	})
}

// set forgets all lines.
func (l *lines) set() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = nil
	l.at = nil
}

func TestSilentConnectionIsToldWithItsRemedy(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	var log lines
	locks := newClient(t, server.Through(t, proxy.Endpoint()), mutex.Options{
		AttemptTimeout: 500 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	l := take(t, locks, "a")
	proxy.Stall()
	ctx, cancel := context.WithCancel(context.Background())
	alive := make(chan error)
	go func() { alive <- l.Alive(ctx) }()
	etcdtest.Eventually(t, "the line", func() bool {
		told, _ := log.with("on a connection that is open; without DialKeepAliveTime")
		return len(told) == 1 && strings.Contains(told[0], "endpoints=")
	})
	cancel()
	<-alive
	proxy.Heal()
	unlock(t, l)
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
