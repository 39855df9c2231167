package e2e

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestPlainKeysAreALock is the protocol by hand: a lock written with nothing but puts is listed, alerts, and
// is removed; one that is extended in the last moment is not; neighbours and foreign keys survive.
func TestPlainKeysAreALock(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	const slack = 4 * time.Second // between the deadline and the removal, for who extends in the last moment
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.clock-skew="+slack.String()).ready(t)

	neighbours := []string{"a%2Fb", "ab", "a%252Fb", "A"}
	for _, segment := range neighbours {
		plain(t, c, segment, time.Hour, 2*time.Hour)
	}
	foreign := []string{prefix + "a/b/uuid", prefix + "a/NOT A FIELD", prefix + "a0", prefix + "a"}
	for _, key := range foreign {
		etcdtest.Put(t, c, key, "somebody else's")
	}
	stale := plain(t, c, "a", 300*time.Millisecond, 4*time.Second)
	saved := plain(t, c, "saved", 300*time.Millisecond, 4*time.Second)

	shows(t, u.addr, 2, `unlocker_locks{state="alerting"}`)
	shows(t, u.addr, float64(len(neighbours)), `unlocker_locks{state="held"}`)
	const alertAt = `unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="a",`
	answers(t, u.addr, "/metrics", 200, alertAt)
	if names, want := listed(t, etcd.Endpoint()), []string{"A", "a", "a%2Fb", "a/b", "ab",
		"saved"}; !slices.Equal(names, want) {
		t.Errorf("mutexctl lists %q, want %q", names, want)
	}

	shows(t, u.addr, 2, `unlocker_locks{state="expired"}`)
	write(t, c, record{"alert_at": in(time.Hour), "auto_unlock_at": in(time.Hour)}.at(prefix+"saved"))
	next := plain(t, c, "next", 0, 0)

	gone(t, c, "a")
	gone(t, c, "next") // and the extended lock before it, by its old deadline
	hides(t, u.addr, alertAt)
	shows(t, u.addr, 2, `unlocker_removals_total{result="success"}`)
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
	checkTrail(t, u, endings(t, c), stale, next)
}

// plain writes a record of plain keys, as a client that knows nothing but the article does, and returns its uuid. The
// lock is to be alerted about and removed so long from now.
func plain(t *testing.T, c *clientv3.Client, segment string, alert, unlock time.Duration) string {
	t.Helper()
	id := uuid.NewString()
	write(t, c, with("uuid", id, "alert_at", in(alert), "auto_unlock_at", in(unlock)).at(prefix+segment))
	return id
}

// checkTrail expects exactly one history entry and one audit line of the removal of each of these, and no others.
func checkTrail(t *testing.T, u *unlocker, history map[string]metadata.Ending, ids ...string) {
	t.Helper()
	lines := u.audited(t, "success")
	if len(history) != len(ids) || len(lines) != len(ids) {
		t.Errorf("the history is %v, the audit lines are %q, want those of %q", history, lines, ids)
	}
	for _, id := range ids {
		ending := history[id]
		if ending.Cause != metadata.EndingAutoUnlocked || ending.Hostname != "host-1" || ending.Reason == "" {
			t.Errorf("the ending is %+v", ending)
		}
		if len(lines[id]) != 1 {
			t.Errorf("the audit lines are %q", lines[id])
		}
	}
}

// listed are the names of the locks as mutexctl tells them to scripts.
func listed(t *testing.T, endpoint string) []string {
	t.Helper()
	o := command(t, "mutexctl", "list", "--output=name", "--etcd.endpoints="+endpoint)
	if o.Code != 0 {
		t.Fatalf("mutexctl list: %d: %s", o.Code, o.Stderr)
	}
	return slices.Sorted(strings.FieldsSeq(o.Stdout))
}

// TestOnlySelectedLocksAreRemoved runs an unlocker in every mode, each on a prefix of its own and with rights on
// nothing else, with the same stale locks. When those that come last have removed theirs, the others had the time to.
func TestOnlySelectedLocksAreRemoved(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Auth())
	c := etcd.Client(t)
	modes := []struct {
		name  string
		args  []string
		keeps []string
	}{
		{"alerts", []string{"--policy=alert-only"}, []string{"keep%2Fit", "production-db", "other"}},
		{"tries", []string{"--sweep.dry-run"}, []string{"keep%2Fit", "production-db", "other"}},
		{"excludes", []string{"--sweep.exclude=keep/*", "--sweep.exclude=*-db"},
			[]string{"keep%2Fit", "production-db"}},
		{"removes", nil, nil},
	}
	var unlockers []*unlocker
	for _, mode := range modes {
		prefix := "/" + mode.name + "/"
		for _, segment := range []string{"keep%2Fit", "production-db", "other"} {
			write(t, c, expired("x").at(prefix+segment))
		}
		etcd.AddUser(t, mode.name, "secret", prefix, etcdtest.ReadWrite)
		unlockers = append(unlockers, startUnlocker(t, []string{etcd.Endpoint()}, append(mode.args,
			"--locks.prefix="+prefix, "--etcd.user="+mode.name, "--etcd.password-file="+secretFile(t, "secret"))...).
			ready(t))
	}
	for i, mode := range slices.Backward(modes) {
		u := unlockers[i]
		kept := float64(len(mode.keeps))
		shows(t, u.addr, 3-kept, `unlocker_removals_total{result="success"}`)
		if mode.name != "alerts" {
			shows(t, u.addr, kept, `unlocker_removals_total{result="skipped"}`)
		}
		shows(t, u.addr, kept, `unlocker_locks{state="expired"}`)
		for _, segment := range mode.keeps {
			if len(stored(t, c, "/"+mode.name+"/"+segment+"/uuid")) == 0 {
				t.Errorf("an unlocker that %s: %s is gone", mode.name, segment)
			}
		}
	}
}

// TestUnlockerStopsInOrder looks at the end by signal: not ready, but working, for the delay; then no trace is left.
func TestUnlockerStopsInOrder(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--web.shutdown-delay=3s", "--log.level=debug").ready(t)
	present := func() bool { return etcdtest.Count(t, c, prefix+".unlockers/") > 0 }
	etcdtest.Eventually(t, "the presence record", present)

	u.Signal(syscall.SIGTERM)
	answers(t, u.addr, "/readyz", 503)
	answers(t, u.addr, "/livez", 200)
	answers(t, u.addr, "/metrics", 200)
	if !present() {
		t.Error("it left before its delay was over")
	}
	if code := u.Wait(t); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	if present() && !strings.Contains(u.Output(), "the presence record is left to expire") { // etcd was too slow
		t.Error("its presence record is left")
	}
}
