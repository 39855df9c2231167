//go:build alerts

package alerts

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// rulesAlerts is an alert of each rule, in the order of the rules.
func rulesAlerts(t *testing.T) (all []told) {
	t.Helper()
	found := map[string]told{}
	for _, text := range texts(t, "deploy/prometheus/tests/*.test.yaml") {
		var tests struct {
			Tests []struct {
				Rules []struct {
					Name string `yaml:"alertname"`
					Want []told `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		proctest.Must(t, yaml.Unmarshal([]byte(text), &tests))
		for _, test := range tests.Tests {
			for _, rule := range test.Rules {
				if _, known := found[rule.Name]; !known && len(rule.Want) > 0 {
					found[rule.Name] = rule.Want[0]
				}
			}
		}
	}
	names := regexp.MustCompile(`(?m)^      - alert: (\w+)$`)
	for _, name := range names.FindAllStringSubmatch(read(t, "deploy/prometheus/unlocker.rules.yaml"), -1) {
		one := found[name[1]]
		one.Labels = maps.Clone(one.Labels)
		one.Labels["alertname"] = name[1]
		one.Labels["cluster"] = "eu"
		one.Labels["namespace"] = "locking"
		all = append(all, one)
	}
	return all
}

// TestAlertTextsMatchTheDocumentation sends an alert of each rule through Alertmanager to the chat or the pager.
// Without the inhibitions, because they do not all fire at once.
func TestAlertTextsMatchTheDocumentation(t *testing.T) {
	t.Parallel()
	r := newReceivers(t, func(config string) string {
		config, _, _ = strings.Cut(config, "\ninhibit_rules:\n")
		return strings.ReplaceAll(config, `'owner =~ "search(-.*)?"'`, `'owner = "a team of its own"'`)
	})
	all := rulesAlerts(t)
	post(t, r.am, all...)
	links := regexp.MustCompile(`(?m)^(Since|Installation|Page|Runbook|Silence): .*\n`)
	page := ""
	for _, one := range all {
		name := one.Labels["alertname"]
		to := map[string]string{"critical": "/pagerduty", "warning": "/slack#locks"}[one.Labels["severity"]]
		if to == "" {
			continue // of mere information nobody is told
		}
		text := r.wants(to, "Runbook: "+one.Annotations["runbook_url"]+"\n").readable(t)
		title := regexp.MustCompile(`(?m)^(?:title|summary): (.*)$`).FindStringSubmatch(text)[1]
		_, text, _ = strings.Cut(text, "\n\n")
		page += name + "\n" + title + "\n" + links.ReplaceAllString(text, "") + "\n"
	}
	r.showsText("every alert", transcript(fixed, strings.TrimRight(page, "\n")))
}
