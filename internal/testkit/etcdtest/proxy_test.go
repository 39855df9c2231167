package etcdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestProxyIsABadNetworkUntilHealed(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	p := etcdtest.NewProxy(t, s.Endpoint())
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Endpoint()}, MaxUnaryRetries: 1, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	put(t, c, "a", "before")

	for name, bad := range map[string]struct {
		fault   func()
		arrives bool
	}{
		"cut":             {p.Cut, false},
		"stalled":         {p.Stall, false},
		"answers dropped": {p.DropAnswers, true},
	} {
		t.Run(name, func(t *testing.T) {
			bad.fault()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			written := make(chan error)
			go func() {
				_, err := c.Put(ctx, name, "1")
				written <- err
			}()
			arrived := arrives(t, s.Client(t), name, bad.arrives)
			cancel()
			if err := <-written; err == nil {
				t.Error("a write got its answer")
			}
			if arrived != bad.arrives {
				t.Errorf("the write arrived: %v, want %v", arrived, bad.arrives)
			}
			p.Heal()
			for err = errors.New("not tried"); err != nil && t.Context().Err() == nil; {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err = c.Put(ctx, "a", "after")
				cancel()
			}
		})
	}
	t.Run("delayed", func(t *testing.T) {
		p.Delay(50 * time.Millisecond)
		defer p.Heal()
		start := time.Now()
		put(t, c, "a", "late")
		if took := time.Since(start); took < 100*time.Millisecond {
			t.Errorf("a round trip took %v with 50 ms of delay each way", took)
		}
	})
}

// arrives reports whether a key is there within a moment, or, where it is expected, within what a busy machine may
// take.
func arrives(t *testing.T, c *clientv3.Client, key string, expected bool) bool {
	t.Helper()
	timeout := 300 * time.Millisecond
	if expected {
		timeout = 30 * time.Second
	}
	for began := time.Now(); time.Since(began) < timeout; time.Sleep(10 * time.Millisecond) {
		if get(t, c, key) != "" {
			return true
		}
	}
	return false
}
