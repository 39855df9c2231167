package unlocker_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// It could neither remove a lock nor announce itself, so nobody else would know.
func TestAnUnlockerWhoseRoleMayOnlyReadIsNotReadyAndSaysWhy(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.Auth())
	etcd.AddUser(t, "reader", "secret", protocol.DefaultPrefix, etcdtest.Read)
	password := filepath.Join(t.TempDir(), "password")
	proctest.Must(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	front := start(t, etcd.Endpoint(), "--policy=alert-only", "--etcd.user=reader", "--etcd.password-file="+password)
	proctest.Answers(t, "http://"+front+"/readyz?exclude=writes", http.StatusOK)
	body := proctest.Answers(t, "http://"+front+"/readyz?exclude=etcd", http.StatusServiceUnavailable)
	const want = "writes: etcd denies permission: the role of our etcd user does not allow this on these keys; an " +
		"unlocker needs readwrite on the prefix /mutexes/"
	if !strings.Contains(body, want) {
		t.Errorf("it says %q", body)
	}
}

// Metrics reveal lock names, so they may need a password; a kubelet's probes have none.
func TestProbesNeedNoPasswordOnAListenerOfTheirOwn(t *testing.T) {
	config := filepath.Join(t.TempDir(), "web.yml")
	// her password is "test"
	users := "basic_auth_users:\n  alice: $2a$04$LYB8BWBw84czLD2u3iqe0urGcCv4NUdah.KQ/N90/CvJnJCOMZwOu\n"
	proctest.Must(t, os.WriteFile(config, []byte(users), 0o600))
	probes := proctest.FreeAddr(t)
	front := start(t, etcdtest.Start(t).Endpoint(), "--web.probe-address="+probes, "--web.config.file="+config)
	proctest.Answers(t, "http://"+probes+"/readyz", http.StatusOK)
	for url, want := range map[string]int{
		"http://" + probes + "/livez":             http.StatusOK,
		"http://" + probes + "/-/ready":           http.StatusOK,
		"http://" + probes + "/metrics":           http.StatusNotFound,
		"http://" + probes + "/":                  http.StatusNotFound,
		"http://" + front + "/readyz":             http.StatusUnauthorized,
		"http://" + front + "/metrics":            http.StatusUnauthorized,
		"http://alice:test@" + front + "/metrics": http.StatusOK,
		"http://alice:test@" + front + "/livez":   http.StatusOK,
	} {
		if got, _, _ := proctest.Get(http.DefaultClient, url); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}
}
