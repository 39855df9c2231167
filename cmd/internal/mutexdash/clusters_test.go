package mutexdash_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// clusters runs the program with a file of clusters.
func clusters(t *testing.T, file string, more ...string) program {
	t.Helper()
	p := program{proctest.FreeAddr(t), proctest.FreeAddr(t)}
	args := append([]string{"--clusters=" + write(t, "clusters.yaml", file), "--web.listen-address=" + p.pages,
		"--web.ops-address=" + p.ops, "--web.shutdown-delay=0s", "--log.level=error"}, more...)
	proctest.Go(t, func(ctx context.Context) error { return flags.Execute(ctx, mutexdash.Command(), args) })
	return p
}

// page asks as somebody whom a proxy knows.
func page(t *testing.T, p program, who, method, path string, form url.Values) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.pages+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-User", who)
	r.Header.Set("X-User", who)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// says waits until a page says all of it.
func says(t *testing.T, p program, path string, within time.Duration, texts ...string) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		status, body := page(t, p, "ann", http.MethodGet, path, nil)
		missing := ""
		for _, text := range texts {
			if !strings.Contains(body, text) {
				missing = text
			}
		}
		if missing == "" && status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s answers %d and does not say %q: %s", path, status, missing, body)
		}
	}
}

// The same lock is held in both, even with the same uuid.
func TestTwoClustersInOnePageAndOneGoes(t *testing.T) {
	t.Parallel()
	eu := etcdtest.Start(t)
	us := etcdtest.Start(t)
	inEU, inUS := eu.Client(t), us.Client(t)
	take(t, inEU, "nightly/run")
	take(t, inUS, "nightly/run")
	take(t, inUS, "only/us")
	p := clusters(t, fmt.Sprintf("clusters: [{name: eu, endpoints: [%q]}, {name: us, label: America, endpoints: [%q]}]",
		eu.Endpoint(), us.Endpoint()), "--web.identity=header", "--web.trusted-proxies=127.0.0.1",
		"--web.enable-force-unlock", "--web.permissions-file="+write(t, "permissions.yaml",
			"users: {ann: [view, audit, unlock cluster:us]}\n"))
	answers(t, p.ops+"/-/ready", http.StatusOK, "ready")
	says(t, p, "/", proctest.Timeout, "/c/eu/lock?name=nightly/run", "/c/us/lock?name=nightly/run",
		"/c/us/lock?name=only/us", "America")
	answers(t, p.ops+"/metrics", http.StatusOK, `cluster="us"`)

	if status, body := forceUnlock(t, p, inUS, "ann", "/c/eu"); status != http.StatusForbidden {
		t.Errorf("a force unlock without permission in that cluster answers %d: %s", status, body)
	}
	if status, body := forceUnlock(t, p, inUS, "ann", "/c/us"); status != http.StatusSeeOther {
		t.Fatalf("the force unlock answers %d: %s", status, body)
	}
	if read(t, inUS).Token != 0 || read(t, inEU).Token == 0 {
		t.Error("the lock is to go in us, and nowhere else")
	}
	answers(t, p.ops+"/metrics", http.StatusOK, `mutexdash_force_unlocks_total{cluster="us",result="success"} 1`)
	says(t, p, "/audit", proctest.Timeout, "force unlock", "America")

	us.Stop()
	says(t, p, "/", 2*time.Minute, "etcd of <b>America</b> has not answered for", "/c/us/lock?name=only/us",
		"/c/eu/lock?name=nightly/run", `<body class="live"`)
	says(t, p, "/c/us/lock?name=only/us", proctest.Timeout, "etcd has not answered since", "As of ")
	for _, probe := range []string{"/-/ready", "/readyz", "/readyz?exclude=etcd"} {
		answers(t, p.ops+probe, http.StatusOK, "ready")
	}
	if _, err := inEU.Delete(t.Context(), "/mutexes/nightly%2Frun/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	says(t, p, "/?q=cluster:eu", proctest.Timeout, "0</b> of 1 lock")
	us.Restart(t)
	says(t, p, "/?q=cluster:us", 2*time.Minute, ` live" href="`, "only/us")
}

// One is away, and the other was never there.
func TestADashboardOfNoClusterThatIsCurrentIsNotReady(t *testing.T) {
	t.Parallel()
	eu := etcdtest.Start(t)
	p := clusters(t, fmt.Sprintf("clusters: [{name: eu, endpoints: [%q]}, {name: us, endpoints: [%q]}]",
		eu.Endpoint(), proctest.FreeAddr(t)))
	answers(t, p.ops+"/readyz", http.StatusOK, "ready")
	eu.Stop()
	answers(t, p.ops+"/readyz", http.StatusServiceUnavailable, "etcd: the view of no cluster is current: eu: ")
	answers(t, p.ops+"/readyz?exclude=etcd", http.StatusOK, "ready")
}
