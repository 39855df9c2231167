//go:build alerts

package alerts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// world is an etcd, its locks, and the receivers of alerts.
type world struct {
	*testing.T
	etcd     *etcdtest.Server
	client   *clientv3.Client
	dashAddr string
	hook     *hook
}

func newWorld(t *testing.T) *world {
	etcd := etcdtest.Start(t)
	return &world{T: t, etcd: etcd, client: etcd.Client(t), dashAddr: proctest.FreeAddr(t), hook: newHook(t)}
}

type unlocker struct {
	*proctest.Process
	addr string
}

func (w *world) unlocker() *unlocker {
	w.Helper()
	u := &unlocker{addr: proctest.FreeAddr(w.T)}
	u.Process = proctest.Start(w.T, programs.Command(w.T, "unlocker",
		"--policy=auto-unlock", "--metrics.lock-series=all",
		"--sweep.min-warning=1s", "--sweep.clock-skew=1s", "--sweep.exclude=stuck*",
		"--dashboard.url=http://"+w.dashAddr,
		"--etcd.endpoints="+w.etcd.Endpoint(), "--web.listen-address="+u.addr, "--web.shutdown-delay=0s"))
	return u
}

// dashboard runs one, and returns the address of its metrics.
func (w *world) dashboard() (ops string) {
	w.Helper()
	ops = proctest.FreeAddr(w.T)
	proctest.Start(w.T, programs.Command(w.T, "mutexdash", "--etcd.endpoints="+w.etcd.Endpoint(),
		"--web.listen-address="+w.dashAddr, "--web.ops-address="+ops))
	return ops
}

// take takes a lock as services do.
func (w *world) take(name string, expect, unlock time.Duration) *mutex.Lock {
	w.Helper()
	locks, err := mutex.New(w.client, mutex.Options{Owner: "billing"})
	proctest.Must(w, err)
	l, err := locks.Lock(w.Context(), name, mutex.Purpose("nightly invoices"), mutex.AlertAfter(expect),
		mutex.AutoUnlockAfter(unlock))
	proctest.Must(w, err)
	w.Cleanup(func() { locks.Close() })
	return l
}

// lock writes a record whose deadline passed this many seconds ago, or will pass. An unlocker that saw it written would
// give its holder the whole hour from then on, so write it before they start.
func (w *world) lock(name string, deadline int) {
	w.Helper()
	at := time.Now().Add(time.Duration(deadline) * time.Second)
	_, err := w.client.Txn(w.Context()).Then(w.puts(name, lockrecord.Draft{
		UUID:     "00000000-0000-4000-8000-000000000001",
		Identity: metadata.Identity{Owner: "billing", Hostname: "host-1", Purpose: "by hand"},
		LockedAt: at.Add(-time.Hour), AlertAt: at.Add(-time.Minute), AutoUnlockAt: at,
	})...).Commit()
	proctest.Must(w, err)
}

// puts are what writes a record.
func (w *world) puts(name string, d lockrecord.Draft) (ops []clientv3.Op) {
	w.Helper()
	fields, err := d.Fields()
	if err != nil {
		w.Error(err)
	}
	for _, f := range fields {
		ops = append(ops, clientv3.OpPut(protocol.DefaultLayout().Field(name, f.Name), f.Value))
	}
	return ops
}

// alert is one alert in what Alertmanager tells a web hook.
type alert struct {
	Status      string
	Labels      map[string]string
	Annotations map[string]string
	StartsAt    time.Time
}

func (a alert) is(status, name, lock string) bool {
	return a.Status == status && a.Labels["alertname"] == name && a.Labels["lock"] == lock
}

// hook is a web hook that keeps what it receives.
type hook struct {
	*httptest.Server
	mu  sync.Mutex
	got []alert
}

func newHook(t *testing.T) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var told struct{ Alerts []alert }
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
			t.Errorf("the web hook got something unreadable: %v", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, told.Alerts...)
	}))
	t.Cleanup(h.Close)
	return h
}

// wants waits until the hook was told of an alert, and returns what.
func (w *world) wants(status, name, lock string) (found alert) {
	w.Helper()
	proctest.Eventually(w.T, fmt.Sprintf("%s of %q is %s", name, lock, status), func() error {
		w.hook.mu.Lock()
		defer w.hook.mu.Unlock()
		for _, a := range slices.Backward(w.hook.got) {
			if a.is(status, name, lock) {
				found = a
				return nil
			}
		}
		return fmt.Errorf("only told of %v", w.hook.got)
	})
	return found
}

// told is how often the hook was told of the alert.
func (w *world) told(status, name, lock string) (times int) {
	w.hook.mu.Lock()
	defer w.hook.mu.Unlock()
	for _, a := range w.hook.got {
		if a.is(status, name, lock) {
			times++
		}
	}
	return times
}

// forget forgets what the hook was told.
func (w *world) forget() {
	w.hook.mu.Lock()
	defer w.hook.mu.Unlock()
	w.hook.got = nil
}

// alertmanager runs one that tells the hook at once, with the inhibitions of the example.
func (w *world) alertmanager() (url string) {
	w.Helper()
	_, inhibitions, found := strings.Cut(read(w.T, "deploy/alertmanager/alertmanager.example.yml"),
		"\ninhibit_rules:\n")
	if !found {
		w.Fatal("the example has no inhibitions")
	}
	config := fmt.Sprintf(`
route: {receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: hook, webhook_configs: [{url: %q, send_resolved: true}]}]
inhibit_rules:
%s`, w.hook.URL, inhibitions)
	return alertmanager(w.T, file(w.T, "alertmanager.yml", config))
}

// prometheus runs one that scrapes everything every second, with the shipped rules but shorter waits: see hasty.
func (w *world) prometheus(alertmanager string, unlockers []string, dashboards ...string) (url string) {
	w.Helper()
	quoted := func(addresses []string) string {
		b, _ := json.Marshal(addresses)
		return string(b)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
scrape_configs:
  - {job_name: unlocker, static_configs: [{targets: %s, labels: {cluster: eu, namespace: locking}}]}
  - {job_name: mutexdash, static_configs: [{targets: %s, labels: {cluster: eu, namespace: locking}}]}
`, file(w.T, "hasty.rules.yaml", hasty(w.T)), strings.TrimPrefix(alertmanager, "http://"), quoted(unlockers),
		quoted(dashboards))
	return prometheus(w.T, config, "--rules.alert.resend-delay=1s")
}

// prometheus runs one with a configuration.
func prometheus(t *testing.T, config string, more ...string) (url string) {
	t.Helper()
	addr := proctest.FreeAddr(t)
	proctest.Start(t, proctest.Command(t, tool(t, "prometheus"), append([]string{
		"--config.file=" + file(t, "prometheus.yml", config), "--storage.tsdb.path=" + t.TempDir(),
		"--web.listen-address=" + addr, "--log.level=warn"}, more...)...))
	return "http://" + addr
}

// hasty are the shipped rules, where every "for" and "keep_firing_for" is two seconds and nothing else is different.
// How long alerts really wait is tested by promtool, which has no need to wait itself. The alerts about single locks
// have neither, and are untouched.
func hasty(t *testing.T) string {
	t.Helper()
	shipped := read(t, "deploy/prometheus/unlocker.rules.yaml")
	waits := regexp.MustCompile(`(?m)^(        (?:for|keep_firing_for): )\d+m$`)
	if n := len(waits.FindAllString(shipped, -1)); n < 10 {
		t.Fatalf("%d waits in the rules", n)
	}
	return waits.ReplaceAllString(shipped, "${1}2s")
}

func get(url string) (body string, err error) {
	status, body, err := proctest.Get(http.DefaultClient, url)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %.300s", url, status, body)
	}
	return body, err
}
