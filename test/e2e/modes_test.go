package e2e

import (
	"slices"
	"syscall"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestOnlyWhatTheOperatorWantsIsRemoved runs an unlocker in every mode, each on a prefix of its own and with rights on
// nothing else, with the same stale locks. When those that come last have removed theirs, the others had the time to.
func TestOnlyWhatTheOperatorWantsIsRemoved(t *testing.T) {
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

// TestAnUnlockerEndsInOrder looks at the end by signal: not ready, but working, for the delay; then no trace is left.
func TestAnUnlockerEndsInOrder(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--web.shutdown-delay=3s").ready(t)
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
	if present() {
		t.Error("its presence record is left")
	}
}

// TestAStatusPageForPeople looks at the page below a path, as behind a proxy.
func TestAStatusPageForPeople(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	addr := proctest.FreeAddr(t)
	start(t, "unlocker", "--policy=auto-unlock", "--etcd.endpoints="+etcd.Endpoint(), "--web.listen-address="+addr,
		"--web.external-url=https://ops.example.com/unlocker/")
	answers(t, addr, "/unlocker/-/ready", 200)
	answers(t, addr, "/unlocker/-/healthy", 200)
	page := answers(t, addr, "/unlocker/", 200)
	if err := contains(page, "Ready.", "auto-unlock", "minimum warning 30s", `href="metrics"`); err != nil {
		t.Error(err)
	}
	answers(t, addr, "/unlocker/nonsense", 404)
	answers(t, addr, "/", 404)
}
