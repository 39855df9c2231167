//go:build alerts

package alerts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// programs are our binaries.
var programs *proctest.Programs

const top = "../../"

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(proctest.Main(m, &programs, "unlocker", "mutexdash"))
}

// tool is the path of a program that has to be installed.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not installed: run this by make alerts", strings.Join(names, " or "))
	return ""
}

// output runs a command, which must succeed, and returns its output.
func output(t *testing.T, stdin []byte, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(top + name)
	proctest.Must(t, err)
	return string(b)
}

// texts are the files that match a pattern.
func texts(t *testing.T, pattern string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(top + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	for _, file := range files {
		all = append(all, read(t, strings.TrimPrefix(filepath.ToSlash(file), top)))
	}
	return all
}

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

func TestAlertmanagerExampleRoutesAlerts(t *testing.T) {
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
