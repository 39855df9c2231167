package chart

import (
	"reflect"
	"testing"
)

// group is a group of rules, of the file or of a PrometheusRule.
type group struct {
	Name  string           `json:"name"`
	Rules []map[string]any `json:"rules"`
}

// alerts are the rules that raise one, by its name.
func alerts(groups []group) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, g := range groups {
		for _, r := range g.Rules {
			if name, ok := r["alert"].(string); ok {
				all[name] = r
			}
		}
	}
	return all
}

func fileRules(t *testing.T) []group {
	t.Helper()
	var file struct{ Groups []group }
	unmarshal(t, repository+"/deploy/prometheus/unlocker.rules.yaml", &file)
	return file.Groups
}

func installedRules(t *testing.T, v map[string]any) []group {
	t.Helper()
	for _, o := range mustRender(t, load(t), v).objects {
		if o.kind == "PrometheusRule" {
			var rule struct{ Spec struct{ Groups []group } }
			decode(t, o, &rule)
			return rule.Spec.Groups
		}
	}
	t.Fatal("no PrometheusRule")
	return nil
}

// A chart can only read files inside of it, so it has a copy.
func TestRulesAreInstalledUnchanged(t *testing.T) {
	installed := installedRules(t, working(t, "monitoring: {prometheusRule: {enabled: true}}"))
	if want := fileRules(t); !reflect.DeepEqual(installed, want) {
		t.Errorf("installed are\n%v\nand in the file\n%v: make chart-files", installed, want)
	}
}

func TestAlertsAreDisabledAndOverriddenByName(t *testing.T) {
	bent := alerts(installedRules(t, scenarios(t)["servicemonitor"]))
	all := alerts(fileRules(t))
	for name, r := range all {
		labels := r["labels"].(map[string]any)
		labels["team"] = "platform"
		switch name {
		case "UnlockerLockSeriesDropped":
			continue
		case "UnlockerDown":
			labels["severity"] = "page"
		case "UnlockerLockMalformed":
			r["for"] = "1h"
		}
		if !reflect.DeepEqual(bent[name], r) {
			t.Errorf("%s is\n%v, want\n%v", name, bent[name], r)
		}
	}
	if len(bent) != len(all)-1 {
		t.Errorf("%d of %d alerts are installed, one is disabled", len(bent), len(all))
	}
}
