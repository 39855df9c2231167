package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestEverybodyMayDoWhatTheirRoleSays lets every program do every kind of work with every kind of right, and looks at
// etcd for what became of it: locks and viewer have the rights that the documentation gives them, and nothing beyond the
// prefix; neighbour has the same of another prefix.
func TestEverybodyMayDoWhatTheirRoleSays(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())
	etcd.AddUser(t, "locks", "", prefix, etcdtest.ReadWrite)
	etcd.AddUser(t, "viewer", "", prefix, etcdtest.Read)
	etcd.AddUser(t, "neighbour", "", "/mutexes-of-others/", etcdtest.ReadWrite)
	as := func(user string) []string {
		cert, key := etcd.CA().Issue(t, user)
		return []string{"--etcd.endpoints=" + etcd.Endpoint(), "--etcd.cacert=" + etcd.CA().File(), "--etcd.cert=" + cert,
			"--etcd.key=" + key}
	}
	c := etcd.Client(t)
	t.Run("mutexctl", func(t *testing.T) { commandsByRole(t, c, as) })
	t.Run("unlocker", func(t *testing.T) { unlockersByRole(t, c, as) })
	t.Run("mutexdash", func(t *testing.T) { dashboardsByRole(t, c, as) })
}

func commandsByRole(t *testing.T, c *clientv3.Client, as func(string) []string) {
	for _, may := range []struct {
		user        string
		read, write int // exit codes
	}{{"locks", 0, 0}, {"viewer", 0, 1}, {"neighbour", 1, 1}} {
		stuck := "stuck/" + may.user
		id := plain(t, c, strings.ReplaceAll(stuck, "/", "%2F"), time.Minute, time.Hour)
		for _, do := range []struct {
			code int
			args []string
		}{
			{may.read, []string{"list"}},
			{may.read, []string{"show", stuck}},
			{may.read, []string{"history"}},
			{may.write, []string{"run", "job/" + may.user, "--wait=0s", "--", "true"}},
			{may.write, []string{"alive", stuck, "--uuid=" + id}},
			{may.write, []string{"force-unlock", stuck, "--uuid=" + id, "--yes",
				"--reason=a test of what roles allow"}},
		} {
			got := command(t, "mutexctl", append(do.args[:1:1], append(as(may.user), do.args[1:]...)...)...)
			if got.Code != do.code {
				t.Errorf("%s: mutexctl %s ends with status %d, want %d: %s", may.user, do.args[0], got.Code, do.code,
					got.Stderr)
			}
			if got.Code != 0 && contains(got.Stderr, "permission") != nil {
				t.Errorf("%s: mutexctl %s does not say that it has no permission: %q", may.user, do.args[0], got.Stderr)
			}
		}
		if held, want := exists(t, c, prefix+"stuck%2F"+may.user+"/uuid"), may.write != 0; held != want {
			t.Errorf("%s: the lock is held: %v, want %v", may.user, held, want)
		}
		for key := range stored(t, c, prefix+"job%2F"+may.user) {
			t.Errorf("%s left %s", may.user, key)
		}
	}
}

func unlockersByRole(t *testing.T, c *clientv3.Client, as func(string) []string) {
	write(t, c, keys(map[string]record{"stale": expired("x")}))
	viewer := startUnlocker(t, nil, as("viewer")...)
	proctest.Eventually(t, "the reason", func() error {
		return contains(answers(t, viewer.addr, "/readyz", 503), "writes", "permission", "readwrite")
	})
	proctest.Eventually(t, "the page", func() error {
		return contains(answers(t, viewer.addr, "/", 200), "etcd takes no writes", "permission")
	})
	shows(t, viewer.addr, 1, "unlocker_removal_held_back", "reason", "etcd")
	if !exists(t, c, prefix+"stale/uuid") {
		t.Fatal("a client with read permission removed a lock")
	}
	viewer.Kill()
	neighbour := startUnlocker(t, nil, as("neighbour")...)
	proctest.Eventually(t, "the reason", func() error {
		return contains(answers(t, neighbour.addr, "/readyz", 503), "permission",
			prefix)
	})
	neighbour.Kill()
	startUnlocker(t, nil, as("locks")...).ready(t)
	gone(t, c, "stale")
}

func dashboardsByRole(t *testing.T, c *clientv3.Client, as func(string) []string) {
	dir := t.TempDir()
	permissions := filepath.Join(dir, "permissions.yaml")
	if err := os.WriteFile(permissions, []byte("users:\n  ann: [view, backtrace, audit, unlock]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, may := range []struct {
		user   string
		status int
	}{{"viewer", http.StatusServiceUnavailable}, {"locks", http.StatusOK}} {
		id := plain(t, c, "broken", time.Minute, time.Hour)
		d := startDashboard(t, "", append(as(may.user), "--web.enable-force-unlock", "--web.identity=header",
			"--web.trusted-proxies=127.0.0.1/32",
			"--web.permissions-file="+permissions)...)
		answers(t, d.ops, "/readyz", http.StatusOK)
		token := tokenOf(t, c, prefix+"broken/uuid")
		body := fmt.Sprintf(`{"name":"broken","uuid":%q,"token":"%d","reason":"a test of what roles allow"}`, id, token)
		status, answer := postAs(t, d.addr, "ann", "/api/v1/lock/force-unlock", body)
		if status != may.status {
			t.Errorf("%s: status %d, want %d: %s", may.user, status, may.status, answer)
		}
		if held, want := exists(t, c, prefix+"broken/uuid"), may.status != http.StatusOK; held != want {
			t.Errorf("%s: the lock is held: %v, want %v", may.user, held, want)
		}
		if status, answer := postAs(t, d.addr, "bob", "/api/v1/lock/force-unlock",
			body); status != http.StatusForbidden {
			t.Errorf("bob: status %d, want %d: %s", status, http.StatusForbidden, answer)
		}
		d.Kill()
	}
}

// tokenOf is the create revision of a key.
func tokenOf(t *testing.T, c *clientv3.Client, key string) int64 {
	t.Helper()
	resp, err := c.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("get %s: %d keys, %v", key, len(resp.Kvs), err)
	}
	return resp.Kvs[0].CreateRevision
}

func postAs(t *testing.T, addr, user, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-User", user)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
