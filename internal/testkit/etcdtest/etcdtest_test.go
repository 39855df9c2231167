package etcdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func TestServerKeepsItsDataOverARestart(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	c := s.Client(t)
	put(t, c, "a", "1")
	s.Restart(t)
	if got := get(t, c, "a"); got != "1" {
		t.Errorf("a = %q after the restart, want 1", got)
	}
}

func TestSpacesOfASharedEtcdDoNotMeet(t *testing.T) {
	ctx := t.Context()
	one, two := etcdtest.Shared(t), etcdtest.Shared(t)
	if one.Endpoint() != two.Endpoint() {
		t.Error("there are two of it")
	}
	mine := one.Client(t)
	put(t, mine, "a", "1")
	lease, err := mine.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	for c, sees := range map[*clientv3.Client]bool{one.Client(t): true, two.Client(t): false} {
		leases, err := c.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, c, "a") == "1"; got != sees || (len(leases.Leases) == 1) != sees {
			t.Errorf("sees %v, leases %v, want %v", got, leases.Leases, sees)
		}
	}
	if _, err := mine.Revoke(ctx, lease.ID); err != nil {
		t.Error(err)
	}
}

func TestStopCutsAWatchOffAtOnce(t *testing.T) {
	s := etcdtest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	<-s.Client(t).Watch(ctx, "a", clientv3.WithCreatedNotify())
	start := time.Now()
	s.Stop()
	if took := time.Since(start); took > 5*time.Second { // so long at least takes one that waits for the watch
		t.Errorf("stop took %v with a watch open", took)
	}
}

func TestUserIsHeldToItsPrefix(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]etcdtest.Option{
		"plain":               {etcdtest.Auth()},
		"TLS":                 {etcdtest.Auth(), etcdtest.TLS()},
		"client certificates": {etcdtest.Auth(), etcdtest.ClientCerts()},
	} {
		t.Run(name, func(t *testing.T) {
			s := etcdtest.Start(t, opts...)
			s.AddUser(t, "reader", "secret", "/in/", etcdtest.Read)
			put(t, s.Client(t), "/in/a", "1")

			conf := clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "reader", Password: "secret",
				Logger: zap.NewNop()}
			conf.TLS = s.ClientTLS(t, "reader")
			c, err := clientv3.New(conf)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := get(t, c, "/in/a"); got != "1" {
				t.Errorf("/in/a = %q, want 1", got)
			}
			if _, err := c.Get(t.Context(), "/out"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("a read outside the prefix: %v, want permission denied", err)
			}
			if _, err := c.Put(t.Context(), "/in/a", "2"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("a write by a reader: %v, want permission denied", err)
			}
		})
	}
}

func TestFilledStoreRefusesWritesUntilDrained(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Quota(4<<20))
	c := s.Client(t)
	s.Fill(t, "fill")
	if _, err := c.Put(t.Context(), "a", "1"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a write into the full store: %v, want no space", err)
	}
	s.Drain(t, "fill")
	put(t, c, "a", "1")
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Put(ctx, key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := c.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}
