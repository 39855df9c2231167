package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// A chart can only read files inside of it, so there are copies: make chart-files.
func TestTheRulesAndDashboardsOfTheChartAreTheOnesBesideIt(t *testing.T) {
	originals := []string{repository + "/deploy/prometheus/unlocker.rules.yaml"}
	boards, err := filepath.Glob(repository + "/deploy/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	originals = append(originals, boards...)
	copies, err := os.ReadDir(directory + "/files")
	if err != nil {
		t.Fatal(err)
	}
	if len(copies) != len(originals) {
		t.Errorf("%d copies of %d files: make chart-files", len(copies), len(originals))
	}
	for _, original := range originals {
		one, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(directory, "files", filepath.Base(original)))
		if err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s is not what the chart has: make chart-files (%v)", original, err)
		}
	}
}

// group is a group of rules, of the file or of a PrometheusRule.
type group struct {
	Name  string           `json:"name"`
	Rules []map[string]any `json:"rules"`
}

// alerts are the rules that raise one.
func alerts(groups []group) (all []map[string]any) {
	for _, g := range groups {
		for _, r := range g.Rules {
			if r["alert"] != nil {
				all = append(all, r)
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
		if o.kind != "PrometheusRule" {
			continue
		}
		var rule struct{ Spec struct{ Groups []group } }
		if err := yaml.Unmarshal([]byte(o.text), &rule); err != nil {
			t.Fatal(err)
		}
		return rule.Spec.Groups
	}
	t.Fatal("no PrometheusRule")
	return nil
}

func TestTheRulesAreInstalledAsTheyAre(t *testing.T) {
	installed := installedRules(t,
		values(t, "policy: auto-unlock\netcd: {endpoints: [etcd:2379]}\nmonitoring: {prometheusRule: {enabled: true}}"))
	if want := fileRules(t); !reflect.DeepEqual(installed, want) {
		t.Errorf("installed are\n%v\nand in the file\n%v", installed, want)
	}
}

func TestAlertsAreLeftOutAndBentByName(t *testing.T) {
	bent := map[string]map[string]any{}
	for _, r := range alerts(installedRules(t, scenarios(t)["servicemonitor"])) {
		bent[r["alert"].(string)] = r
	}
	total := 0
	for _, r := range alerts(fileRules(t)) {
		total++
		name := r["alert"].(string)
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
	if len(bent) != total-1 {
		t.Errorf("%d of %d alerts are installed, one is disabled", len(bent), total)
	}
}
