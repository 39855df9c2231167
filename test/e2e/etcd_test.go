package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// prefix is where the locks lie. The keys below are written out by hand: this is how the protocol looks from a shell.
const prefix = "/mutexes/"

// write puts keys, as `etcdctl put` does.
func write(t *testing.T, c *clientv3.Client, all map[string]string) {
	t.Helper()
	// what is older than the uuid of its record is left over from an earlier one
	for _, uuids := range []bool{true, false} {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if strings.HasSuffix(key, "/uuid") == uuids {
				etcdtest.Put(t, c, key, all[key])
			}
		}
	}
}

// stored returns all keys below a prefix.
func stored(t *testing.T, c *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	r, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

// exists reports whether the record of a lock is there. segment is the lock's name as it stands in the key.
func exists(t *testing.T, c *clientv3.Client, segment string) bool {
	t.Helper()
	return etcdtest.Count(t, c, prefix+segment+"/uuid") > 0
}

// gone waits until nothing is left of a lock's record.
func gone(t *testing.T, c *clientv3.Client, segment string) {
	t.Helper()
	etcdtest.Eventually(t, "the removal of "+segment, func() bool { return !exists(t, c, segment) })
}

// endings are the history entries by uuid.
func endings(t *testing.T, c *clientv3.Client) map[string]metadata.Ending {
	t.Helper()
	all := map[string]metadata.Ending{}
	for key, value := range stored(t, c, prefix+".history/") {
		ending, err := protocol.Unmarshal[metadata.Ending]([]byte(value))
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		all[strings.TrimPrefix(key, prefix+".history/")] = ending
	}
	return all
}
