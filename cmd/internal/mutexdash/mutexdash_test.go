package mutexdash_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// program is a running mutexdash.
type program struct{ pages, ops string }

// start runs the program until the test ends, and expects it to exit cleanly.
func start(t *testing.T, endpoint string, more ...string) program {
	t.Helper()
	p := program{proctest.FreeAddr(t), proctest.FreeAddr(t)}
	args := append([]string{"--etcd.endpoints=" + endpoint, "--web.listen-address=" + p.pages,
		"--web.ops-address=" + p.ops, "--web.shutdown-delay=0s", "--log.level=error"}, more...)
	proctest.Go(t, func(ctx context.Context) error { return flags.Execute(ctx, mutexdash.Command(), args) })
	return p
}

// answers waits until the address answers with the status and a body that has the texts.
func answers(t *testing.T, address string, status int, texts ...string) {
	t.Helper()
	proctest.Answers(t, "http://"+address, status, texts...)
}

// take writes the record of a held lock.
func take(t *testing.T, c *clientv3.Client, name string) {
	t.Helper()
	layout := protocol.DefaultLayout()
	fields, err := lockrecord.Draft{
		UUID:     "3f2a0000-9b1e-4c57-a2d0-5b7c8d9e0003",
		Identity: metadata.Identity{Owner: "billing", Hostname: "billing-0", PID: 7, Purpose: "invoices"},
		LockedAt: time.Now().Add(-2 * time.Hour), AlertAt: time.Now().Add(time.Hour),
		AutoUnlockAt: time.Now().Add(2 * time.Hour), Backtrace: "app/run.rb:3:in 'go'",
	}.Fields()
	proctest.Must(t, err)
	for _, f := range fields {
		if _, err := c.Put(t.Context(), layout.Field(name, f.Name), f.Value); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadOnlyRoleIsEnough(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Auth())
	etcd.AddUser(t, "mutexdash", "secret", protocol.DefaultPrefix, etcdtest.Read)
	take(t, etcd.Client(t), "nightly/run")
	password := filepath.Join(t.TempDir(), "password")
	proctest.Must(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	p := start(t, etcd.Endpoint(), "--etcd.user=mutexdash", "--etcd.password-file="+password,
		"--web.external-url=https://ops.example/locks/")
	answers(t, p.pages+"/locks/lock?name=nightly/run", http.StatusOK, "app/run.rb:3",
		"mutexctl force-unlock nightly/run")
	answers(t, p.pages+"/locks/status", http.StatusOK, "No unlocker has announced itself")
	take(t, etcd.Client(t), "another")
	answers(t, p.pages+"/locks/?q=another", http.StatusOK, "billing-0")
}

func TestBadFlagsAreReportedInOneSentence(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"--web.external-url=ftp://x", `the external URL "ftp://x" is not of the form https://host/path`},
		{"--web.external-url=https://x/a/../b", "must be plain"},
		{"--web.ops-address=:8080", "--web.listen-address and --web.ops-address are both :8080"},
		{"--sweep.abandoned=unlock", "there is no flag --sweep.abandoned"},
		{"--web.source-link=https://git/{file}", "PREFIX=https://host/path/{file}"},
		{"--web.hsts=24h", "needs a certificate"},
		{"--web.allowed-hosts=*", "not the name of a host"},
		{"surplus", "surplus"},
	} {
		err := flags.Execute(t.Context(), mutexdash.Command(), []string{c.line})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.line, err, c.says)
			continue
		}
		var coded interface{ ExitCode() int }
		if !errors.As(err, &coded) || coded.ExitCode() != 2 {
			t.Errorf("%s: %v does not end with status 2", c.line, err)
		}
	}
}

func TestStatusShowsFlagsButNoSecrets(t *testing.T) {
	etcd := etcdtest.Start(t)
	t.Setenv("MUTEXDASH_ETCD_USER", "dash")
	t.Setenv("MUTEXDASH_ETCD_PASSWORD", "wholly-secret")
	p := start(t, etcd.Endpoint(), "--web.environment=prod-eu")
	answers(t, p.pages+"/status", http.StatusOK, "web.environment", "<dt>leader</dt>")
	_, text := page(t, p, "", http.MethodGet, "/status", nil)
	for _, secret := range []string{"wholly-secret", "etcd.user", "web.listen-address"} {
		if strings.Contains(text, secret) {
			t.Errorf("the page reveals %s to all users: %s", secret, text)
		}
	}
}

func TestDashboardServesItsConfiguredHosts(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	p := start(t, etcd.Endpoint(), "--web.external-url=https://locks.example",
		"--web.allowed-hosts=dash.locks.svc,dash")
	answers(t, p.ops+"/readyz", http.StatusOK, "ready")
	own, err := os.Hostname()
	proctest.Must(t, err)
	for host, status := range map[string]int{"locks.example": 200, "dash.locks.svc:8080": 200, "dash": 200,
		"localhost:8080": 200, own: 200, p.pages: 200, "evil.example": 421} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.pages+"/", nil)
		proctest.Must(t, err)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		proctest.Must(t, err)
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s is answered with %d, want %d", host, resp.StatusCode, status)
		}
	}
	answers(t, p.ops+"/metrics", http.StatusOK, "mutexdash_etcd_up 1")
}

func TestRecordAtForeignKeysIsListedAsMalformed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	for key, value := range map[string]string{ // what a client that escapes nothing writes
		"100%/uuid": "3f2a0000-9b1e-4c57-a2d0-5b7c8d9e0003", "100%/owner": "by-hand",
		"100%/auto_unlock_at": "1553682600", "50%/owner": "left over",
	} {
		etcdtest.Put(t, c, "/mutexes/"+key, value)
	}
	take(t, c, "100%")
	p := start(t, etcd.Endpoint())
	answers(t, p.pages+"/", http.StatusOK, "/mutexes/100%")
	answers(t, p.pages+"/api/v1/locks?q=state:malformed", http.StatusOK, `"name":"/mutexes/100%"`)
	answers(t, p.pages+"/api/v1/summary", http.StatusOK,
		`"held":1,"alerting":0,"expiring":0,"abandoned":0,"expired":0,"malformed":1`)
	answers(t, p.pages+"/lock?name=/mutexes/100%25", http.StatusOK, "is no lock name as the protocol writes it",
		"etcdctl txn")
	answers(t, p.pages+"/lock?name=100%25", http.StatusOK, "invoices")
}

func TestUsualHoldIsSeenByTheDashboard(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	locks, err := mutex.New(etcd.Client(t), mutex.Options{Defaults: []mutex.Option{mutex.Owner("billing")}})
	proctest.Must(t, err)
	defer locks.Close()
	p := start(t, etcd.Endpoint())
	answers(t, p.pages+"/lock?name=nightly/run", http.StatusOK, "Nobody holds this lock")
	for range 3 {
		proctest.Must(t, locks.Do(t.Context(), "nightly/run", func(context.Context) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}))
	}
	answers(t, p.pages+"/lock?name=nightly/run", http.StatusOK, "Usually takes less than a second (3 holds seen)")
}
