package unlocker_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/internal/flags"
)

// free is an address on which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The metrics tell names of locks, so some want a password for them; a kubelet has none.
func TestProbesNeedNoPasswordOnAListenerOfTheirOwn(t *testing.T) {
	config := filepath.Join(t.TempDir(), "web.yml")
	// her password is "test"
	users := "basic_auth_users:\n  alice: $2a$04$LYB8BWBw84czLD2u3iqe0urGcCv4NUdah.KQ/N90/CvJnJCOMZwOu\n"
	if err := os.WriteFile(config, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	endpoint := etcdtest.Start(t).Endpoint()
	front := free(t)
	probes := free(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- flags.Execute(ctx, unlocker.Command(), []string{"--policy=alert-only", "--etcd.endpoints=" + endpoint,
			"--web.listen-address=" + front, "--web.probe-address=" + probes, "--web.config.file=" + config,
			"--web.shutdown-delay=0s", "--log.level=error"})
	}()
	eventually(t, "http://"+probes+"/readyz", http.StatusOK)
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
		if got := status(url); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

// status is 0 where nobody answers.
func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func eventually(t *testing.T, url string, want int) {
	t.Helper()
	last := 0
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if last = status(url); last == want {
			return
		}
	}
	t.Fatalf("%s: %d, want %d", url, last, want)
}
