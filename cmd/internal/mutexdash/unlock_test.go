package mutexdash_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const hold = "3f2a0000-9b1e-4c57-a2d0-5b7c8d9e0003" // of the lock that take takes

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// read reads that lock.
func read(t *testing.T, c *clientv3.Client) metadata.FullRecord {
	t.Helper()
	layout := protocol.DefaultLayout()
	document, _, err := lockstore.New(c, layout).ReadRecord(t.Context(), "nightly/run")
	proctest.Must(t, err)
	return document
}

// forceUnlock posts ann's form for the lock that take took, through the proxy.
func forceUnlock(t *testing.T, p program, c *clientv3.Client) (status int, text string) {
	t.Helper()
	document := read(t, c)
	form := url.Values{"hold": {hold}, "token": {strconv.FormatInt(document.Token, 10)},
		"revision": {strconv.FormatInt(document.Revision, 10)},
		"typed":    {"nightly/run"}, "reason": {"the pod is dead, node lost"}}
	proctest.Eventually(t, "data that is not stale", func() (err error) {
		status, text = page(t, p, "ann@example.org", http.MethodPost, "/unlock?name=nightly/run&hold="+hold, form)
		if status == http.StatusPreconditionFailed {
			err = errors.New(text)
		}
		return err
	})
	return status, text
}

func TestForceUnlockThroughTheWholeProgram(t *testing.T) {
	t.Parallel()
	permissions := write(t, "permissions.yaml", "everyone: [view]\nusers: {ann@example.org: [unlock, audit]}\n")
	for name, c := range map[string]struct {
		right  etcdtest.Right
		status int
		says   string
	}{
		"a role that may write": {etcdtest.ReadWrite, http.StatusSeeOther, "Done."},
		"a role that only reads": {etcdtest.Read, http.StatusServiceUnavailable,
			"Nothing was done: etcd denies permission"},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t, etcdtest.Auth())
			etcd.AddUser(t, "mutexdash", "secret", protocol.DefaultPrefix, c.right)
			root := etcd.Client(t)
			take(t, root, "nightly/run")
			p := start(t, etcd.Endpoint(), "--etcd.user=mutexdash",
				"--etcd.password-file="+write(t, "password", "secret\n"), "--web.identity=header",
				"--web.trusted-proxies=127.0.0.1", "--web.permissions-file="+permissions, "--web.enable-force-unlock")
			answers(t, p.ops+"/readyz", http.StatusOK, "ready")
			status, page := forceUnlock(t, p, root)
			if status != c.status || !strings.Contains(page, c.says) {
				t.Errorf("the answer is %d %s", status, page)
			}
			if held := read(t, root).Token != 0; held != (c.status != http.StatusSeeOther) {
				t.Errorf("the lock is held is %t", held)
			}
			if c.status == http.StatusSeeOther {
				answers(t, p.ops+"/metrics", http.StatusOK, `mutexdash_force_unlocks_total{result="success"} 1`)
			}
		})
	}
}

func TestBasicAuthUserIsTheIdentity(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	take(t, etcd.Client(t), "nightly/run")
	const bcrypt = "$2y$04$/vIqjtJ8pN2dHGIAs4LTqeJ8Yr1IP3uZ9a4Tl9bFo3nPWPCkBIpH2" // of nothing that anybody knows
	config := write(t, "web.yaml", "basic_auth_users:\n  ann: "+bcrypt+"\n")
	p := start(t, etcd.Endpoint(), "--web.identity=basic", "--web.config.file="+config)
	answers(t, p.ops+"/readyz", http.StatusOK, "ready")
	answers(t, p.pages+"/", http.StatusUnauthorized, "Unauthorized")
	proctest.Must(t, os.WriteFile(config, []byte("basic_auth_users: {}\n"), 0o600))
	answers(t, "ann:x@"+p.pages+"/", http.StatusUnauthorized, "needs to know who you are")
}

func TestPermissionsFileIsReloadedUnlessInvalid(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	take(t, etcd.Client(t), "nightly/run")
	permissions := write(t, "permissions.yaml", "everyone: [view]\n")
	p := start(t, etcd.Endpoint(), "--web.identity=header", "--web.identity.header=X-User",
		"--web.trusted-proxies=127.0.0.1", "--web.permissions-file="+permissions)
	answers(t, p.ops+"/readyz", http.StatusOK, "ready")
	becomes := func(status int) {
		t.Helper()
		proctest.Eventually(t, "the audit", func() error {
			if got, _ := page(t, p, "ann", http.MethodGet, "/audit", nil); got != status {
				return fmt.Errorf("it answers %d, want %d", got, status)
			}
			return nil
		})
	}
	becomes(http.StatusForbidden)
	for _, c := range []struct {
		text   string
		status int
	}{{"everyone: [view, audit]\n", http.StatusOK}, {"everyone: [all]\n", http.StatusOK},
		{"everyone: [view]\n", http.StatusForbidden}} {
		proctest.Must(t, os.WriteFile(permissions, []byte(c.text), 0o600))
		becomes(c.status)
	}
}

// page asks as somebody whom a proxy knows.
func page(t *testing.T, p program, who, method, path string, form url.Values) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.pages+path, strings.NewReader(form.Encode()))
	proctest.Must(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-User", who)
	r.Header.Set("X-User", who)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	proctest.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	proctest.Must(t, err)
	return resp.StatusCode, string(body)
}
