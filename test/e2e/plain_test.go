package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestPlainKeysAreAFirstClassLock is the protocol by hand: a lock written with nothing but puts is listed, alerts, and
// is removed; one that is extended in the last moment is not; neighbours and foreign keys survive.
func TestPlainKeysAreAFirstClassLock(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	const slack = 2 * time.Second // between the deadline and the removal, for who extends in the last moment
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.clock-skew="+slack.String()).ready(t)

	neighbours := []string{"a%2Fb", "ab", "a%252Fb", "A"}
	for _, segment := range neighbours {
		plain(t, c, segment, time.Hour, 2*time.Hour)
	}
	foreign := []string{prefix + "a/b/uuid", prefix + "a/NOT A FIELD", prefix + "a0", prefix + "a"}
	for _, key := range foreign {
		put(t, c, key, "somebody else's")
	}
	stale := plain(t, c, "a", 500*time.Millisecond, 4*time.Second)
	saved := plain(t, c, "saved", 500*time.Millisecond, 4*time.Second)

	shows(t, u.addr, 2, "unlocker_locks", "state", "alerting")
	shows(t, u.addr, float64(len(neighbours)), "unlocker_locks", "state", "held")
	if _, err := scrape(t, u.addr).value("unlocker_lock_alert_at_timestamp_seconds", "lock", "a", "hostname",
		"host-1"); err != nil {
		t.Error(err)
	}
	if names, want := listed(t, etcd.Endpoint()), []string{"A", "a", "a%2Fb", "a/b", "ab",
		"saved"}; !slices.Equal(names, want) {
		t.Errorf("mutexctl lists %q, want %q", names, want)
	}

	shows(t, u.addr, 2, "unlocker_locks", "state", "expired")
	later := metadata.FormatTime(time.Now().Add(time.Hour))
	put(t, c, prefix+"saved/auto_unlock_at", later, prefix+"saved/alert_at", later)

	gone(t, c, "a")
	lint(t, u.addr)
	hides(t, u.addr, "unlocker_lock_alert_at_timestamp_seconds", "lock", "a")
	shows(t, u.addr, 1, "unlocker_removals_total", "result", "success")
	time.Sleep(warning + slack + time.Second) // in which the extended lock would go, too, by its old deadline
	all := stored(t, c, prefix)
	for _, segment := range append(neighbours, "saved") {
		for _, field := range []string{"uuid", "hostname", "locked_at", "alert_at", "auto_unlock_at"} {
			if _, found := all[prefix+segment+"/"+field]; !found {
				t.Errorf("%s of %s is gone", field, segment)
			}
		}
	}
	for _, key := range foreign {
		if all[key] != "somebody else's" {
			t.Errorf("the foreign key %s is gone", key)
		}
	}
	if all[prefix+"saved/uuid"] != saved {
		t.Error("the extended lock changed hands")
	}
	if left := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(key string) bool {
		return !strings.HasPrefix(key, prefix+"a/") || slices.Contains(foreign, key)
	}); len(left) > 0 {
		t.Errorf("left over of the removed lock: %q", left)
	}
	checkTrail(t, u, endings(t, c), stale)
}

// checkTrail expects exactly one history entry and one audit line of the removal of one lock, and none of another.
func checkTrail(t *testing.T, u *unlocker, history map[string]metadata.Ending, id string) {
	t.Helper()
	if len(history) != 1 || history[id].Ended != metadata.EndedAutoUnlocked || history[id].Hostname != "host-1" ||
		history[id].Why == "" {
		t.Errorf("the history is %v, want the removal of %s", history, id)
	}
	if lines := u.audited(t, "success"); len(lines) != 1 || len(lines[id]) != 1 {
		t.Errorf("the audit lines are %q, want one of %s", lines, id)
	}
}

// listed are the names of the locks as mutexctl tells them to scripts.
func listed(t *testing.T, endpoint string) []string {
	t.Helper()
	o := command(t, "mutexctl", "list", "--output=json", "--etcd.endpoints="+endpoint)
	if o.Code != 0 {
		t.Fatalf("mutexctl list: %d: %s", o.Code, o.Stderr)
	}
	var names []string
	for line := range strings.Lines(o.Stdout) {
		var lock struct{ Name string }
		if err := json.Unmarshal([]byte(line), &lock); err != nil {
			t.Fatalf("mutexctl list: %v: %q", err, line)
		}
		names = append(names, lock.Name)
	}
	slices.Sort(names)
	return names
}
