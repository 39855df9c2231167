//go:build alerts

package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

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

// expectedAlerts returns the first alert of each name that the tests of the rules expect: promtool checks that
// Prometheus sends it so.
func expectedAlerts(t *testing.T) map[string]told {
	t.Helper()
	first := map[string]told{}
	for _, text := range texts(t, "deploy/prometheus/tests/*.test.yaml") {
		var rules struct {
			Tests []struct {
				Alerts []struct {
					Name     string `yaml:"alertname"`
					Expected []struct {
						Labels      map[string]string `yaml:"exp_labels"`
						Annotations map[string]string `yaml:"exp_annotations"`
					} `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		proctest.Must(t, yaml.Unmarshal([]byte(text), &rules))
		for _, test := range rules.Tests {
			for _, a := range test.Alerts {
				if _, known := first[a.Name]; !known && len(a.Expected) > 0 {
					a.Expected[0].Labels["alertname"] = a.Name
					first[a.Name] = told{Labels: a.Expected[0].Labels, Annotations: a.Expected[0].Annotations}
				}
			}
		}
	}
	return first
}

// TestEveryAlertIsShown renders every alert, firing and resolved, with the shipped templates.
func TestEveryAlertIsShown(t *testing.T) {
	t.Parallel()
	const golden = "testdata/alerts.txt"
	alerts := expectedAlerts(t)
	if rules := strings.Count(read(t, "deploy/prometheus/unlocker.rules.yaml"), "- alert: "); len(alerts) != rules {
		t.Errorf("the tests expect %d of %d alerts", len(alerts), rules)
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		a := alerts[name]
		for _, status := range []string{"firing", "resolved"} {
			one := map[string]any{"status": status, "labels": a.Labels, "annotations": a.Annotations,
				"startsAt": fixed, "endsAt": fixed.Add(9*time.Minute + time.Second)}
			data, err := json.Marshal(map[string]any{"status": status, "alerts": []any{one}, "commonLabels": a.Labels})
			proctest.Must(t, err)
			shown := output(t, nil, tool(t, "amtool"), "template", "render",
				"--template.glob="+top+"deploy/alertmanager/unlocker.tmpl",
				"--template.data="+file(t, "data", string(data)),
				`--template.text={{ template "unlocker.title" . }}{{ "\n" }}{{ template "unlocker.body" . }}`)
			fmt.Fprintf(&all, "%s, %s:\n%s\n", name, status, strings.TrimRight(shown, "\n")+"\n")
		}
	}
	proctest.Golden(t, golden, *updatePage, all.String())
}

func TestAlertmanagerExampleRoutesAlerts(t *testing.T) {
	t.Parallel()
	amtool := tool(t, "amtool")
	example := top + "deploy/alertmanager/alertmanager.example.yml"
	output(t, nil, amtool, "check-config", example)
	for labels, receiver := range map[string]string{
		"alertname=UnlockerDown severity=critical":                      "pager,chat",
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
