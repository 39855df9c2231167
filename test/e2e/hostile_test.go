package e2e

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestHostileRecordsCrashNothingAndHideNothing writes whatever a hostile client could write. All of it is shown by
// everybody, the one stale lock among it is removed and nothing else is, and with a default policy for malformed locks
// these go and nothing else.
func TestHostileRecordsCrashNothingAndHideNothing(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	for _, all := range []map[string]string{keys(malformed()), keys(odd()), sound().at(prefix + "neighbour"),
		foreignKeys()} {
		write(t, c, all)
	}
	before := protocolKeys(t, c)
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--metrics.lock-series=all").ready(t)
	dash := startDashboard(t, etcd.Endpoint())
	held := len(odd()) + 1
	shows(t, u.addr, float64(held), `unlocker_locks{state="held"}`)
	shows(t, u.addr, float64(len(malformed())+len(misplaced())), `unlocker_locks{state="malformed"}`)
	shows(t, u.addr, 0, "unlocker_lock_series_dropped")

	names := slices.Concat(slices.Collect(maps.Keys(malformed())), slices.Collect(maps.Keys(odd())),
		[]string{"neighbour"})
	lint(t, u.addr)
	lint(t, dash.ops)
	checkCommandLine(t, etcd.Endpoint(), names)
	checkDashboard(t, dash, slices.Concat(names, misplaced()))

	stale := `stale </td><script>alert(1)</script>` + "\x1b[31m\n"
	write(t, c, keys(map[string]record{stale: expired(evil()[0])}))
	shows(t, u.addr, 1, `unlocker_removals_total{result="success"}`)
	same(t, c, before)

	u.Terminate(t)
	u = startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.default-alert-after=200ms",
		"--sweep.default-auto-unlock-after=400ms").ready(t)
	shows(t, u.addr, float64(len(misplaced())), `unlocker_locks{state="malformed"}`)
	shows(t, u.addr, 0, `unlocker_locks{state="expired"}`)
	for key := range keys(malformed()) {
		delete(before, key)
	}
	same(t, c, before)
	shows(t, u.addr, float64(held), `unlocker_locks{state="held"}`)
	objects(t, u.Process)
	objects(t, dash.Process)
	if !u.Running() || !dash.Running() {
		t.Error("a daemon ended")
	}
}

// expired is a record whose deadlines passed, and whose texts are hostile.
func expired(text string) record {
	return with("owner", text, "hostname", text, "purpose", text, "alert_at", "1553682600", "auto_unlock_at",
		"1553682601")
}

// protocolKeys returns all keys below the prefix except those that unlockers write.
func protocolKeys(t *testing.T, c *clientv3.Client) map[string]string {
	t.Helper()
	all := stored(t, c, prefix)
	maps.DeleteFunc(all, func(key, value string) bool {
		own := strings.HasPrefix(key, prefix+".unlockers/") || strings.HasPrefix(key, prefix+".history/")
		return own && strings.Contains(value, `"id":"`) || strings.Contains(value, `"auto_unlocked"`)
	})
	return all
}

// same expects exactly these keys.
func same(t *testing.T, c *clientv3.Client, want map[string]string) {
	t.Helper()
	proctest.Eventually(t, "the keys that are left", func() error {
		got := protocolKeys(t, c)
		if maps.Equal(got, want) {
			return nil
		}
		return errors.New(cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))))
	})
}

// checkCommandLine expects every lock in every format, and nothing that a terminal would obey.
func checkCommandLine(t *testing.T, endpoint string, names []string) {
	t.Helper()
	for _, format := range []string{"table", "wide", "json", "name"} {
		o := command(t, "mutexctl", "list", "--output="+format, "--etcd.endpoints="+endpoint)
		if o.Code != 0 {
			t.Errorf("mutexctl list -o %s: %d: %s", format, o.Code, o.Stderr)
		}
		if !utf8.ValidString(o.Stdout) || strings.ContainsFunc(o.Stdout, obeyed) {
			t.Errorf("mutexctl list -o %s prints what a terminal obeys", format)
		}
		if lines := strings.Count(o.Stdout, "\n"); lines < len(names) {
			t.Errorf("mutexctl list -o %s has %d lines for %d locks", format, lines, len(names))
		}
	}
}

func obeyed(r rune) bool {
	return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// checkDashboard expects every lock in the API, and a page that runs nothing.
func checkDashboard(t *testing.T, d *dashboard, names []string) {
	t.Helper()
	body := answers(t, d.addr, "/api/v1/locks?limit=1000", 200)
	var answer struct {
		Data []struct{ Name string } `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	shown := map[string]bool{}
	for _, l := range answer.Data {
		shown[l.Name] = true
	}
	for _, name := range names {
		if utf8.ValidString(name) && !shown[name] {
			t.Errorf("the API hides %q", name)
		}
	}
	if len(answer.Data) != len(names) {
		t.Errorf("the API shows %d locks of %d", len(answer.Data), len(names))
	}
	page := answers(t, d.addr, "/?limit=1000", 200)
	for _, text := range []string{"<script>alert", "<img src=x", "\x1b", "\x00"} {
		if strings.Contains(page, text) {
			t.Errorf("the page contains %q", text)
		}
	}
}

// dashboard is a running mutexdash.
type dashboard struct {
	*proctest.Process
	addr, ops string
}

func startDashboard(t *testing.T, endpoint string, more ...string) *dashboard {
	t.Helper()
	addr := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	d := &dashboard{addr: addr, ops: ops, Process: start(t, "mutexdash", append([]string{
		"--etcd.endpoints=" + endpoint, "--web.listen-address=" + addr, "--web.ops-address=" + ops,
		"--web.shutdown-delay=0s",
	}, more...)...)}
	answers(t, ops, "/livez", 200)
	return d
}
