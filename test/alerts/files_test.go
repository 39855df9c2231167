//go:build alerts

package alerts

import (
	"path/filepath"
	"strings"
	"testing"
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
