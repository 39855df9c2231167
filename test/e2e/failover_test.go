package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// longWarning is longer than the holders of this test need to recover after an outage.
const longWarning = 4 * time.Second

// batch is a set of locks whose holders are dead.
type batch struct {
	names, uuids []string
	begin, end   time.Time // no lock of it may go in between; zero: it may go any time
	audited      bool      // an audit line of every removal has to be there
}

// TestEveryStaleLockGoesOnceAndNoLiveOneGoes kills whatever there is, one after the other: the leader of etcd, an
// unlocker, the other one; then it restarts them and stops all of etcd for longer than some holders' time to live.
func TestEveryStaleLockGoesOnceAndNoLiveOneGoes(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3)
	c := m.Client(t)
	var all []*batch
	stale := func(deadline time.Duration) *batch {
		b := &batch{audited: true}
		for i := range 5 {
			b.names = append(b.names, fmt.Sprintf("stale-%d-%d", len(all), i))
			b.uuids = append(b.uuids, plain(t, c, b.names[i], deadline/4, deadline))
		}
		all = append(all, b)
		return b
	}
	var unlockers []*unlocker
	run := func() *unlocker {
		u := startUnlocker(t, m.Endpoints(), "--sweep.min-warning="+longWarning.String())
		unlockers = append(unlockers, u)
		return u
	}
	holders := startLive(t, m)
	first := run()
	second := run()
	first.ready(t)
	second.ready(t)
	gone(t, c, stale(2*time.Second).names...)

	// The leader of etcd dies, with deadlines passing while there is none.
	b := stale(2 * time.Second)
	leader := m.Leader(t)
	m.Kill(leader)
	gone(t, c, b.names...)
	m.Restart(leader)

	// One unlocker dies in the middle of its work.
	b = stale(2 * time.Second)
	time.Sleep(2*time.Second + skew)
	first.Kill()
	b.audited = false // it may have had no time for the line
	gone(t, c, b.names...)

	// The other one, too. Then there is nobody, until both come back.
	b = stale(time.Second)
	b.begin = time.Now()
	second.Kill()
	time.Sleep(time.Second + 2*skew)
	restarted := time.Now()
	first = run()
	second = run()
	gone(t, c, b.names...)
	b.end = restarted.Add(longWarning)

	// All of etcd stands still for longer than the holders by hand have.
	b = stale(handTTL)
	b.begin = time.Now()
	for i := range 3 {
		m.Pause(i)
	}
	time.Sleep(handTTL + 2*time.Second)
	resumed := time.Now()
	for i := range 3 {
		m.Resume(i)
	}
	gone(t, c, b.names...)
	b.end = resumed.Add(longWarning)

	if !first.Running() || !second.Running() {
		t.Error("an unlocker ended by itself")
	}
	checkBatches(t, c, all, unlockers)
	checkLive(t, c, holders)
}

// checkBatches expects one removal of each stale lock: one deletion in etcd, one history entry, one audit line.
func checkBatches(t *testing.T, c *clientv3.Client, all []*batch, unlockers []*unlocker) {
	t.Helper()
	history := endings(t, c)
	deleted := deletions(t, c)
	audited := map[string]int{}
	for _, u := range unlockers {
		for id, lines := range u.audited(t, "success") {
			audited[id] += len(lines)
		}
	}
	for _, b := range all {
		for i, id := range b.uuids {
			ended, found := history[id]
			if !found || ended.Ended != metadata.EndedAutoUnlocked || ended.Lock != b.names[i] {
				t.Errorf("%s has no history entry: %v", b.names[i], ended)
			}
			if at := ended.EndedAt; at.After(b.begin) && at.Before(b.end) {
				t.Errorf("%s was removed at %v, within the warning time that ended at %v", b.names[i], at, b.end)
			}
			if deleted[id] != 1 {
				t.Errorf("%s was deleted %d times", b.names[i], deleted[id])
			}
			if n := audited[id]; n > 1 || n == 0 && b.audited {
				t.Errorf("%s has %d audit lines", b.names[i], n)
			}
			delete(audited, id)
			delete(history, id)
		}
	}
	if len(history) > 0 || len(audited) > 0 {
		t.Errorf("removed without a reason: %v %v", history, audited)
	}
}

// checkLive checks that no live holder lost its lock.
func checkLive(t *testing.T, c *clientv3.Client, holders *live) {
	t.Helper()
	deleted := deletions(t, c)
	for _, id := range holders.uuids {
		if deleted[id] > 0 {
			t.Errorf("the record of the live holder %s was deleted", id)
		}
	}
	holders.end(t)
}

// deletions counts all deletions of uuid keys, by uuid. This etcd is never compacted.
func deletions(t *testing.T, c *clientv3.Client) map[string]int {
	t.Helper()
	counts := map[string]int{}
	proctest.Eventually(t, "the history of all keys", func() error {
		clear(counts)
		ctx, cancel := context.WithTimeout(context.Background(), attempt)
		defer cancel()
		now, err := c.Get(ctx, prefix)
		if err != nil {
			return err
		}
		seen := int64(0)
		for resp := range c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV(),
			clientv3.WithProgressNotify()) {
			for _, e := range resp.Events {
				if seen = e.Kv.ModRevision; e.Type == clientv3.EventTypeDelete && strings.HasSuffix(string(e.Kv.Key),
					"/uuid") {
					counts[string(e.PrevKv.Value)]++
				}
			}
			if err := resp.Err(); err != nil {
				return err
			}
			if seen >= now.Header.Revision {
				return nil
			}
		}
		return fmt.Errorf("only up to revision %d of %d", seen, now.Header.Revision)
	})
	return counts
}
