package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// obstacle is a reason why etcd cannot be used, and the expected error.
type obstacle struct {
	name string
	args []string
	says []string
}

// obstacles are one of each kind: internal/etcdconn tests all of them, and their messages.
func obstacles(t *testing.T) []obstacle {
	t.Helper()
	guarded := etcdtest.Start(t, etcdtest.TLS(), etcdtest.Auth())
	guarded.AddUser(t, "stranger", "secret", "/elsewhere/", etcdtest.ReadWrite)
	at := "--etcd.endpoints=" + guarded.Endpoint()
	return []obstacle{
		{"the wrong endpoint", []string{"--etcd.endpoints=127.0.0.1:1"},
			[]string{"unreachable", "127.0.0.1:1", "refused"}},
		{"a certificate of another authority", []string{at, "--etcd.cacert=" + proctest.NewCA(t).File()},
			[]string{"certificate", "authority"}},
		{"no permission", []string{at, "--etcd.cacert=" + guarded.CA().File(), "--etcd.user=stranger",
			"--etcd.password-file=" + secretFile(t, "secret")}, []string{"permission", prefix}},
	}
}

func secretFile(t *testing.T, password string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	proctest.Must(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	return file
}

// TestUnusableEtcdIsOneSentence runs the daemons against an etcd that refuses them. They stay alive but not ready, and
// report the reason once in the log and in each response of /readyz. What commands do, the scripts of internal/cli say.
func TestUnusableEtcdIsOneSentence(t *testing.T) {
	t.Parallel()
	for _, o := range obstacles(t) {
		for program, flags := range map[string][]string{
			"unlocker":  {"--policy=auto-unlock", "--web.listen-address="},
			"mutexdash": {"--web.listen-address=127.0.0.1:0", "--web.ops-address="},
		} {
			t.Run(program+" with "+o.name, func(t *testing.T) {
				t.Parallel()
				addr := proctest.FreeAddr(t)
				waits(t, start(t, program, append([]string{flags[0], flags[1] + addr}, o.args...)...), addr, o)
			})
		}
	}
}

// waits checks that a daemon waits for etcd and reports why.
func waits(t *testing.T, p *proctest.Process, addr string, o obstacle) {
	t.Helper()
	told := func() map[any]int { // by class: a busy machine may also see another one
		times := map[any]int{}
		for _, line := range objects(t, p) {
			message, _ := line["message"].(string)
			if line["level"] == "error" && contains(message, o.says...) == nil {
				times[line["class"]]++
			}
		}
		return times
	}
	proctest.Eventually(t, "the reason", func() error {
		if len(told()) == 0 {
			return errors.New("the log does not give the reason")
		}
		return contains(answers(t, addr, "/readyz", 503), o.says...)
	})
	answers(t, addr, "/livez", 200)
	for class, n := range told() {
		if n != 1 {
			t.Errorf("the log gives the reason %v %d times, want once", class, n)
		}
	}
	if !p.Running() {
		t.Error("the daemon ended")
	}
}

func contains(text string, words ...string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("%.300q does not say %q", text, word)
		}
	}
	return nil
}

// TestDaemonsSurviveEtcd starts the daemons before etcd and stops it under them.
func TestDaemonsSurviveEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	etcd.Stop()
	u := startUnlocker(t, []string{etcd.Endpoint()})
	d := startDashboard(t, etcd.Endpoint())
	up := map[string]string{u.addr: "unlocker_etcd_up", d.ops: "mutexdash_etcd_up"}
	for addr, metric := range up {
		answers(t, addr, "/readyz", 503)
		shows(t, addr, 0, metric)
	}
	etcd.Restart(t)
	for addr, metric := range up {
		shows(t, addr, 1, metric)
		answers(t, addr, "/readyz", 200)
	}
	etcd.Stop()
	for addr, metric := range up {
		shows(t, addr, 0, metric)
		answers(t, addr, "/readyz", 503, "not ready: etcd: the view of the locks is not current: ")
		answers(t, addr, "/readyz?exclude=etcd", 200) // what was seen last is better than nothing
	}
	answers(t, d.addr, "/", 200, "etcd has not answered for")
	for _, p := range []*proctest.Process{u.Process, d.Process} {
		if code := p.Terminate(t); code != 0 {
			t.Errorf("%v ends with status %d, want 0", p, code)
		}
	}
}
