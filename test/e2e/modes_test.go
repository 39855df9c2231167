package e2e

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestOnlyWhatTheOperatorWantsIsRemoved runs an unlocker in every mode, each on a prefix of its own and with rights on
// nothing else, with the same stale locks.
func TestOnlyWhatTheOperatorWantsIsRemoved(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Auth())
	c := etcd.Client(t)
	modes := map[string]struct {
		args  []string
		keeps []string
	}{
		"/removes":  {nil, nil},
		"/excludes": {[]string{"--sweep.exclude=keep/*", "--sweep.exclude=*-db"}, []string{"keep/it", "production-db"}},
		"/tries":    {[]string{"--sweep.dry-run"}, []string{"keep/it", "production-db", "other"}},
		"/alerts":   {[]string{"--policy=alert-only"}, []string{"keep/it", "production-db", "other"}},
	}
	for prefix, mode := range modes {
		for _, segment := range []string{"keep%2Fit", "production-db", "other"} {
			all := map[string]string{}
			for field, value := range expired("x") {
				all[prefix+"/"+segment+"/"+field] = value
			}
			write(t, c, all)
		}
		user := prefix[1:]
		etcd.AddUser(t, user, "secret", prefix+"/", etcdtest.ReadWrite)
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			u := startUnlocker(t, []string{etcd.Endpoint()}, append(mode.args, "--locks.prefix="+prefix,
				"--etcd.user="+user, "--etcd.password-file="+secretFile(t, "secret"))...)
			shows(t, u.addr, float64(3-len(mode.keeps)), "unlocker_removals_total", "result", "success")
			if mode.args != nil && mode.args[0] != "--policy=alert-only" {
				shows(t, u.addr, float64(len(mode.keeps)), "unlocker_removals_total", "result", "skipped")
			} else {
				time.Sleep(warning + 2*time.Second) // in which they would go if they could
			}
			shows(t, u.addr, float64(len(mode.keeps)), "unlocker_locks", "state", "expired")
			for _, name := range mode.keeps {
				if !exists(t, c, prefix+"/"+strings.ReplaceAll(name, "/", "%2F")+"/uuid") {
					t.Errorf("%s is gone", name)
				}
			}
		})
	}
}

// TestAnUnlockerEndsInOrder looks at the end by signal: not ready, but working, for the delay; then no trace is left.
func TestAnUnlockerEndsInOrder(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--web.shutdown-delay=3s").ready(t)
	present := func() bool { return len(stored(t, c, prefix+".unlockers/")) > 0 }
	proctest.Eventually(t, "the presence record", func() error {
		if !present() {
			return errors.New("there is none")
		}
		return nil
	})

	u.Signal(syscall.SIGTERM)
	answers(t, u.addr, "/readyz", 503)
	answers(t, u.addr, "/livez", 200)
	scrape(t, u.addr)
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
	start(t, nil, "unlocker", "--policy=auto-unlock", "--etcd.endpoints="+etcd.Endpoint(), "--web.listen-address="+addr,
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
