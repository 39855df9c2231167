package chart

import (
	"io"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
)

func TestEveryObjectOfEveryScenarioFitsItsSchema(t *testing.T) {
	directory := schemas(t)
	judge, err := validator.New([]string{directory + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"},
		validator.Opts{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	c := load(t)
	kinds := map[string]int{}
	for name, values := range scenarios(t) {
		for _, o := range mustRender(t, c, values).objects {
			kinds[o.kind]++
			for _, result := range judge.Validate(name, io.NopCloser(strings.NewReader(o.text))) {
				if result.Status != validator.Valid {
					t.Errorf("%s: %s %s: %v", name, o.kind, o.name, result.Err)
				}
			}
		}
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "Pod", "Service", "ServiceAccount", "ConfigMap",
		"PodDisruptionBudget", "NetworkPolicy", "Ingress",
		"HTTPRoute", "ServiceMonitor", "PodMonitor", "PrometheusRule"} {
		if kinds[kind] == 0 {
			t.Errorf("no scenario has a %s", kind)
		}
	}
	for says, text := range map[string]string{
		"surprise": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {surprise: true}",
		"matchLabels": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n" +
			"spec: {selector: {matchLabels: {a: {}}}, template: {}}",
		"intervall": "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\n" +
			"spec: {selector: {}, endpoints: [{port: a, intervall: 1s}]}",
		"could not": "apiVersion: example.org/v1\nkind: Unknown\nmetadata: {name: a}",
	} {
		for _, result := range judge.Validate("wrong", io.NopCloser(strings.NewReader(text))) {
			if result.Status == validator.Valid || !strings.Contains(result.Err.Error(), says) {
				t.Errorf("%q passes, or not for %q: %v", text, says, result.Err)
			}
		}
	}
}
