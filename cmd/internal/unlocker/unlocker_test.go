package unlocker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// start runs an unlocker until the test ends, expects it to exit cleanly, and returns its address.
func start(t *testing.T, endpoint string, more ...string) (address string) {
	t.Helper()
	address = proctest.FreeAddr(t)
	args := append([]string{"--policy=auto-unlock", "--etcd.endpoints=" + endpoint, "--web.listen-address=" + address,
		"--web.shutdown-delay=0s", "--log.level=error"}, more...)
	proctest.Go(t, func(ctx context.Context) error { return flags.Execute(ctx, unlocker.Command(), args) })
	return address
}

// metricsShow waits until the metrics match the expression, and calls a function before each look.
func metricsShow(t *testing.T, address, expression string, before func()) {
	t.Helper()
	wanted := regexp.MustCompile("(?m)" + expression)
	proctest.Eventually(t, "the metrics", func() error {
		before()
		_, body, err := proctest.Get(http.DefaultClient, "http://"+address+"/metrics")
		if err == nil && !wanted.MatchString(body) {
			err = fmt.Errorf("the metrics do not fit %q:\n%s", expression, body)
		}
		return err
	})
}

func TestClockIsComparedWithThoseOfMembers(t *testing.T) {
	t.Parallel()
	address := start(t, etcdtest.Start(t).Endpoint())
	metricsShow(t, address, `^unlocker_clock_offset_seconds -?[0-9.e-]+$`, func() {})
	metricsShow(t, address, `^unlocker_clock_jumps_total 0$`, func() {})
}

func TestLandingPageLinksToTheRest(t *testing.T) {
	t.Parallel()
	address := start(t, etcdtest.Start(t).Endpoint(), "--web.route-prefix=/unlocker",
		`--dashboard.url=https://locks.example/a"b`)
	page := proctest.Answers(t, "http://"+address+"/unlocker/", http.StatusOK)
	for _, link := range []string{"./metrics", "./readyz", "./livez", "https://locks.example/a&#34;b"} {
		if !strings.Contains(page, `href="`+link+`"`) {
			t.Errorf("there is no link to %s: %s", link, page)
		}
	}
	if strings.Contains(page, "debug/pprof") {
		t.Error("it links to profiles, which are off")
	}
	resp, err := http.Head("http://" + address + "/unlocker") // redirects to the page
	proctest.Must(t, err)
	resp.Body.Close()
	if got := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none';") {
		t.Errorf("the policy is %q", got)
	}
}

func TestBlindKubernetesWitnessIsAnnounced(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}))
	t.Cleanup(api.Close)
	kubeconfig, err := kubetest.WriteKubeconfig(t.TempDir(), api.URL)
	proctest.Must(t, err)
	// kubectl reads several files, and does without those that are missing
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing")+string(os.PathListSeparator)+kubeconfig)
	etcd := etcdtest.Start(t)
	start(t, etcd.Endpoint(), "--kubernetes.pods")
	client := etcd.Client(t)
	proctest.Eventually(t, "the presence", func() error {
		resp, err := client.Get(t.Context(), protocol.DefaultLayout().Unlockers(), clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 1 {
			return fmt.Errorf("not one presence: %v, %w", resp, err)
		}
		p := protocol.DecodePresence("x", resp.Kvs[0].Value, resp.Kvs[0].Lease)
		if !strings.HasPrefix(p.WitnessProblem, "the API server does not let us watch the pods of all namespaces") {
			return fmt.Errorf("the problem is %q", p.WitnessProblem)
		}
		return nil
	})
}

// An unlocker that ran before a restore keeps reporting the later revision.
func TestPeerThatSawALaterRevisionIsHeeded(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	layout := protocol.DefaultLayout()
	etcdtest.Put(t, client, layout.Field("due", lockrecord.FieldUUID), "3f2a0000-9b1e-4c57-a2d0-5b7c8d9e0003")
	etcdtest.Put(t, client, layout.Field("due", lockrecord.FieldAutoUnlockAt), "1553682600")
	lease, err := client.Grant(t.Context(), 600)
	proctest.Must(t, err)
	metricsShow(t, start(t, etcd.Endpoint()), `^unlocker_removal_held_back{reason="revision"} 1$`, func() {
		p := metadata.Presence{ID: "older", Now: metadata.Time{Time: time.Now()}, Revision: 1_000_000}
		etcdtest.Put(t, client, layout.Unlocker(p.ID), protocol.Marshal(p), clientv3.WithLease(lease.ID))
	})
}

func TestBadSettingIsNamedByItsFlag(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"--sweep.exclude=", "--sweep.exclude: a glob is empty"},
		{"--sweep.exclude=a\xff", `--sweep.exclude: a glob is not valid UTF-8: "a\xff"`},
		{"--metrics.label-attribute=a=b", "it must be the name of a label, such as team"},
		{"--metrics.label-attribute=a,a", `has "a" twice`},
		{"--metrics.label-attribute=a.b", `--metrics.label-attribute cannot be "a.b"`},
		{"--metrics.label-attribute=job", "series or alerts have that label already"},
		{"--metrics.label-attribute=state", "series or alerts have that label already"},
		{"--metrics.label-attribute=lock", "series or alerts have that label already"},
		{"--metrics.lock-series=some", `"some": it must be one of alerting, all, none`},
		{"--dashboard.url=locks", `--dashboard.url "locks" is not of the form https://host/path`},
		{"--dashboard.url=http://a/?q", `--dashboard.url "http://a/?q" is more than scheme, host and path`},
		{"--etcd.endpoints=nonsense", "nonsense"},
		{"--sweep.min-warning=0", "warning"},
		{"--policy=", "--policy"},
		{"--policy=delete", "--policy"},
		{"now", "now"},
		{"--policy=alert-only --sweep.abandoned=unlock", "--policy=alert-only removes nothing: choose one of them"},
		{"--policy=alert-only --sweep.dry-run", "--policy=alert-only removes nothing"},
	} {
		err := flags.Execute(t.Context(), unlocker.Command(), append([]string{"--policy=auto-unlock"},
			strings.Fields(c.line)...))
		var coded interface{ ExitCode() int }
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") ||
			!errors.As(err, &coded) || coded.ExitCode() != 2 {
			t.Errorf("%s: %v, want %q in one sentence, and status 2", c.line, err, c.says)
		}
	}
}

func TestBundledRulesMatchTheRepository(t *testing.T) {
	want, err := os.ReadFile("../../../deploy/prometheus/unlocker.rules.yaml")
	proctest.Must(t, err)
	var out bytes.Buffer
	cmd := unlocker.Command()
	cmd.SetOut(&out)
	if err := flags.Execute(t.Context(), cmd, []string{"rules"}); err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%d bytes, want %d; %v", out.Len(), len(want), err)
	}
}

// It could neither remove a lock nor announce itself, so nobody else would know.
func TestReadOnlyUnlockerIsNotReadyAndReportsWhy(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Auth())
	etcd.AddUser(t, "reader", "secret", protocol.DefaultPrefix, etcdtest.Read)
	password := filepath.Join(t.TempDir(), "password")
	proctest.Must(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	front := start(t, etcd.Endpoint(), "--policy=alert-only", "--etcd.user=reader", "--etcd.password-file="+password)
	proctest.Answers(t, "http://"+front+"/readyz?exclude=writes", http.StatusOK)
	const want = "writes: etcd denies permission: the etcd user's role does not allow this on these keys; an " +
		"unlocker needs readwrite on the prefix /mutexes/"
	proctest.Answers(t, "http://"+front+"/readyz?exclude=etcd", http.StatusServiceUnavailable, want)
}

// Metrics reveal lock names, so they may need a password; a kubelet's probes have none.
func TestProbeListenerNeedsNoPassword(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "web.yml")
	// her password is "test"
	users := "basic_auth_users:\n  alice: $2a$04$LYB8BWBw84czLD2u3iqe0urGcCv4NUdah.KQ/N90/CvJnJCOMZwOu\n"
	proctest.Must(t, os.WriteFile(config, []byte(users), 0o600))
	probes := proctest.FreeAddr(t)
	front := start(t, etcdtest.Start(t).Endpoint(), "--web.probe-address="+probes, "--web.config.file="+config)
	proctest.Answers(t, "http://"+probes+"/readyz", http.StatusOK)
	for url, want := range map[string]int{
		"http://" + probes + "/livez":             http.StatusOK,
		"http://" + probes + "/readyz":            http.StatusOK,
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
