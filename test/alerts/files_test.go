//go:build alerts

package alerts

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestPromtoolAcceptsRulesAndTheirTests(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	output(t, nil, promtool, "check", "rules", "--lint=all", "--lint-fatal",
		top+"deploy/prometheus/unlocker.rules.yaml")
	tests, err := filepath.Glob(top + "deploy/prometheus/tests/*.test.yaml")
	if err != nil || len(tests) < 4 {
		t.Fatalf("tests %q, %v", tests, err)
	}
	output(t, nil, promtool, append([]string{"test", "rules"}, tests...)...)
	output(t, nil, promtool, "check", "config", top+"deploy/prometheus/prometheus.example.yml")
}

func TestTheExampleOfAlertmanagerSendsAlertsWhereTheyBelong(t *testing.T) {
	t.Parallel()
	amtool := tool(t, "amtool")
	example := top + "deploy/alertmanager/alertmanager.example.yml"
	output(t, nil, amtool, "check-config", example)
	for labels, receiver := range map[string]string{
		"alertname=UnlockerDown severity=critical":                      "pager",
		"alertname=UnlockerLockExpired severity=critical owner=search":  "pager,search",
		"alertname=UnlockerLockAlerting severity=warning team=payments": "payments",
		"alertname=UnlockerLockAlerting severity=warning team=unheard":  "chat",
		"alertname=UnlockerLockAlerting severity=warning owner=search2": "chat",
		"alertname=UnlockerLockAlerting severity=warning owner=search":  "search",
		"alertname=UnlockerLockAbandoned severity=warning team=data":    "data",
		"alertname=MutexdashDown severity=warning":                      "chat",
		"alertname=UnlockerLockSeriesDropped severity=info":             "nobody",
	} {
		args := append([]string{"config", "routes", "test", "--config.file=" + example}, strings.Fields(labels)...)
		out := strings.Split(strings.TrimSpace(output(t, nil, amtool, args...)), "\n")
		if got := out[len(out)-1]; got != receiver && out[0] != receiver {
			t.Errorf("%s goes to %q, want %q", labels, out, receiver)
		}
	}
}

func TestPromtoolAcceptsTheMetricsOfBothDaemons(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	w := newWorld(t)
	w.lock("overdue", -10)
	u := w.unlocker()
	d := w.dashboard()
	for _, address := range []string{u.addr, d.ops} {
		proctest.Eventually(t, "a whole scrape",
			func() error { return shows(address, "_locks{", "_etcd_alarm{", "_etcd_requests_total{") })
		body, err := get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if out := output(t, []byte(body), promtool, "check", "metrics"); out != "" {
			t.Errorf("promtool says %s", out)
		}
		if len(body) > 100_000 {
			t.Errorf("a scrape with one lock has %d bytes", len(body))
		}
	}
}
