package etcdtest

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Put writes a key.
func Put(t testing.TB, etcd *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := etcd.Put(context.Background(), key, value); err != nil {
		t.Fatal(err)
	}
}

// Count returns the number of keys with this prefix.
func Count(t testing.TB, etcd *clientv3.Client, prefix string) int64 {
	t.Helper()
	r, err := etcd.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return r.Count
}

// Eventually waits until f returns true, for what no event announces. The test fails if that takes two minutes.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}
