package opsdocs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/deploy"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// rule is one of the rule file: an alert, or a series that alerts are made of.
type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	proctest.Must(t, yaml.Unmarshal(deploy.Rules, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// alerts are the rules that raise one.
func alerts(t *testing.T) []rule {
	t.Helper()
	all := slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" })
	if len(all) < 15 {
		t.Fatalf("only %d alerts", len(all))
	}
	return all
}

func TestAlertsUseExistingMetrics(t *testing.T) {
	all := known(t)
	for _, r := range rules(t) {
		checkQuery(t, all, r.Alert, r.Expr)
		for name, text := range r.Annotations {
			for _, metric := range metricName.FindAllString(text, -1) {
				if _, ok := all[metric]; !ok {
					t.Errorf("%s: the annotation %s asks for %s, which there is not", r.Alert, name, metric)
				}
			}
		}
	}
}

func TestAlertsHaveTheRequiredAnnotations(t *testing.T) {
	for _, r := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: the severity is %q", r.Alert, r.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if want := runbooks + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if strings.HasPrefix(r.Alert, "UnlockerLock") && !strings.Contains(r.Annotations["dashboard"],
			"unlocker_dashboard_info") {
			t.Errorf("%s has no link to the dashboard", r.Alert)
		}
	}
}

// Every alert has a test in which it fires and one in which it does not. promtool runs them: `make alerts`.
func TestEveryAlertIsTested(t *testing.T) {
	files, err := filepath.Glob(top + "deploy/prometheus/tests/*.test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no tests", err)
	}
	quiet := map[string]bool{}
	fires := map[string]bool{}
	for _, file := range files {
		var tests struct {
			Tests []struct {
				Alerts []struct {
					Name string      `yaml:"alertname"`
					Want []yaml.Node `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		proctest.Must(t, yaml.Unmarshal([]byte(read(t, strings.TrimPrefix(filepath.ToSlash(file), top))), &tests))
		for _, test := range tests.Tests {
			for _, a := range test.Alerts {
				quiet[a.Name] = quiet[a.Name] || len(a.Want) == 0
				fires[a.Name] = fires[a.Name] || len(a.Want) > 0
			}
		}
	}
	for _, r := range alerts(t) {
		if !quiet[r.Alert] || !fires[r.Alert] {
			t.Errorf("%s: tested to be quiet %v, to fire %v", r.Alert, quiet[r.Alert], fires[r.Alert])
		}
	}
}

const runbooks = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#"

// runbookParts are what the person paged looks for, in this order.
const runbookParts = `(?s)^\n\*\*What is stuck\.\*\* .*\n\n\*\*What happens next\.\*\* ` +
	`.*\n\n\*\*Look here\.\*\*[ \n].*\n\n\*\*Do this\.\*\*[ \n].*\n\n\*\*Do not\*\* .*\n\n\*\*Over when\*\* `

// Every alert has its runbook, with the same parts, and a line with its severity in the table. No runbook is about an
// alert that does not exist.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	overview, page, _ := strings.Cut(read(t, "docs/runbooks.md"), "\n## ")
	parts := regexp.MustCompile(runbookParts)
	sections := map[string]string{}
	for _, section := range strings.Split(page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for _, r := range alerts(t) {
		text, ok := sections[r.Alert]
		if !ok {
			t.Errorf("docs/runbooks.md has no section ## %s", r.Alert)
			continue
		}
		delete(sections, r.Alert)
		if !parts.MatchString(text) {
			t.Errorf("the runbook of %s lacks a part, or has them in another order", r.Alert)
		}
		line := fmt.Sprintf("\n| [%s](#%s) | %s | ", r.Alert, strings.ToLower(r.Alert), r.Labels["severity"])
		if !strings.Contains(overview, line) {
			t.Errorf("the table of runbooks has no line%s", line)
		}
	}
	for title := range sections {
		if regexp.MustCompile(`^(Unlocker|Mutexdash)[A-Z]`).MatchString(title) {
			t.Errorf("docs/runbooks.md has a section about %s, which is not an alert", title)
		}
	}
}
