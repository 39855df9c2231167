package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// prefix is where the locks lie. The keys below are written out by hand: this is how the protocol looks from a shell.
const prefix = "/mutexes/"

// attempt is the deadline of one request.
const attempt = 5 * time.Second

// put writes keys with their values as `etcdctl put` does, trying until etcd says that it did.
func put(t *testing.T, c *clientv3.Client, pairs ...string) {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		proctest.Eventually(t, fmt.Sprintf("put %q", pair[0]), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), attempt)
			defer cancel()
			_, err := c.Put(ctx, pair[0], pair[1])
			return err
		})
	}
}

// stored returns all keys below a prefix.
func stored(t *testing.T, c *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	proctest.Eventually(t, "read "+prefix, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), attempt)
		defer cancel()
		resp, err := c.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			all[string(kv.Key)] = string(kv.Value)
		}
		return nil
	})
	return all
}

// exists reports whether etcd has the key.
func exists(t *testing.T, c *clientv3.Client, key string) bool {
	t.Helper()
	_, found := stored(t, c, key)[key]
	return found
}

// plain writes a record of plain keys, as a client that knows nothing but the article does, and returns its uuid. The
// lock is to be alerted about and removed so long from now. segment is the lock's name as it stands in the key.
func plain(t *testing.T, c *clientv3.Client, segment string, alert, unlock time.Duration) string {
	t.Helper()
	id := uuid.NewString()
	now := time.Now()
	record := prefix + segment + "/"
	put(t, c,
		record+"uuid", id, // first: what is older is left over from an earlier hold
		record+"hostname", "host-1",
		record+"locked_at", metadata.FormatTime(now),
		record+"alert_at", metadata.FormatTime(now.Add(alert)),
		record+"auto_unlock_at", metadata.FormatTime(now.Add(unlock)),
	)
	return id
}

// gone waits until nothing is left of the locks' records.
func gone(t *testing.T, c *clientv3.Client, segments ...string) {
	t.Helper()
	proctest.Eventually(t, "removal", func() error {
		var left []string
		all := stored(t, c, prefix)
		for _, s := range segments {
			if _, held := all[prefix+s+"/uuid"]; held {
				left = append(left, s)
			}
		}
		if len(left) > 0 {
			return errors.New("still there: " + strings.Join(left, ", "))
		}
		return nil
	})
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
