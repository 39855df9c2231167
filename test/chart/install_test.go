package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// Neither the loss of a pod, node or zone nor an upgrade interrupts service.
func TestTwoOfEachAreSpreadAndRolledWithoutAGap(t *testing.T) {
	budgets := 0
	deployments := 0
	for _, o := range mustRender(t, load(t), scenarios(t)["minimal"]).objects {
		switch o.kind {
		case "PodDisruptionBudget":
			var b policyv1.PodDisruptionBudget
			decode(t, o, &b)
			if b.Spec.MaxUnavailable.IntValue() == 1 && b.Spec.MinAvailable == nil {
				budgets++
			}
		case "Deployment":
			var d appsv1.Deployment
			decode(t, o, &d)
			deployments++
			rolling := d.Spec.Strategy.RollingUpdate
			if *d.Spec.Replicas != 2 || rolling.MaxSurge.IntValue() != 1 || rolling.MaxUnavailable.IntValue() != 0 {
				t.Errorf("%s: %d replicas, rolled by %v", o.name, *d.Spec.Replicas, rolling)
			}
			spread := map[string]bool{}
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				spread[c.TopologyKey] = c.MaxSkew == 1 &&
					c.LabelSelector.MatchLabels["app.kubernetes.io/component"] != ""
			}
			if !spread[corev1.LabelHostname] || !spread[corev1.LabelTopologyZone] {
				t.Errorf("%s is spread over %v", o.name, spread)
			}
		}
	}
	if deployments != 2 || budgets != 2 {
		t.Errorf("%d deployments and %d budgets that let one pod go, want 2 of each", deployments, budgets)
	}
}

func decode(t *testing.T, o object, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(o.text), into); err != nil {
		t.Fatalf("%s %s: %v", o.kind, o.name, err)
	}
}

// The notes after helm install fit what was installed.
func TestTheNotesAreAboutWhatWasInstalled(t *testing.T) {
	c := load(t)
	for name, want := range map[string]struct{ says, silent []string }{
		"minimal": {
			[]string{"alerts about stale locks and removes none", "port-forward svc/locks-unlocker-mutexdash 8080:80",
				"Everybody who reaches it may look", "helm -n locking test locks", "Nobody scrapes"},
			[]string{"for a trial"}},
		"dry-run": {[]string{"removes nothing", "logs deploy/locks-unlocker"},
			[]string{"removes locks of dead holders"}},
		"ingress": {[]string{"removes locks of dead holders", "https://tools.example/locks"},
			[]string{"port-forward"}},
		"servicemonitor":        {nil, []string{"Nobody scrapes"}},
		"force-unlock-password": {nil, []string{"Everybody who reaches it may look"}},
		"dashboard-only":        {[]string{"The dashboard is at"}, []string{"The unlocker"}},
		"trial": {[]string{"is for a trial",
			"mutexctl --etcd.endpoints=locks-unlocker-etcd:2379 reserve"}, nil},
		"force-unlock-certificate": {[]string{"https://locks.example"}, []string{"http://"}},
	} {
		notes := mustRender(t, c, scenarios(t)[name]).notes
		for _, text := range want.says {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: nothing about %q in\n%s", name, text, notes)
			}
		}
		for _, text := range want.silent {
			if strings.Contains(notes, text) {
				t.Errorf("%s: something about %q in\n%s", name, text, notes)
			}
		}
	}
}

// Grafana's sidecar takes files from ConfigMaps by their label; the files are the dashboards, byte for byte.
func TestDashboardsComeAsGrafanasSidecarTakesThem(t *testing.T) {
	boards, err := filepath.Glob(repository + "/deploy/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, o := range mustRender(t, load(t), scenarios(t)["servicemonitor"]).objects {
		if o.kind != "ConfigMap" {
			continue
		}
		var m corev1.ConfigMap
		decode(t, o, &m)
		if m.Labels["grafana_dashboard"] != "1" || m.Annotations["grafana_folder"] != "Platform" {
			t.Errorf("%s has the labels %v and the annotations %v", o.name, m.Labels, m.Annotations)
		}
		for file, text := range m.Data {
			original, err := os.ReadFile(repository + "/deploy/grafana/" + file)
			if err != nil || !bytes.Equal(bytes.TrimSpace(original), bytes.TrimSpace([]byte(text))) {
				t.Errorf("%s in %s is not the dashboard (%v)", file, o.name, err)
			}
			found++
		}
	}
	if found != len(boards) || found == 0 {
		t.Errorf("%d of %d dashboards", found, len(boards))
	}
}

// A misspelled value is refused at any depth, since no group of values takes what it does not know.
func TestTheSchemaIsClosedAtEveryDepth(t *testing.T) {
	var schema map[string]any
	unmarshal(t, directory+"/values.schema.json", &schema)
	closed := 0
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch n := node.(type) {
		case []any:
			for _, inner := range n {
				walk(path, inner)
			}
		case map[string]any:
			if _, group := n["properties"].(map[string]any); group && path != "/properties" {
				closed++
				if _, decided := n["additionalProperties"]; !decided {
					t.Errorf("%s takes members that it does not know", path)
				}
			}
			for name, inner := range n {
				walk(path+"/"+name, inner)
			}
		}
	}
	walk("", schema)
	if closed < 30 {
		t.Errorf("only %d groups are found", closed)
	}
}

// A mirror for all images is set once, in a parent chart.
func TestTheRegistryOfAParentChartCounts(t *testing.T) {
	c := load(t)
	for text, want := range map[string]string{
		"{}":                             "ghcr.io/clustermutex/unlocker:" + c.AppVersion(),
		"{global: {imageRegistry: foo}}": "foo/clustermutex/unlocker:" + c.AppVersion(),
		"{global: {imageRegistry: ''}}":  "ghcr.io/clustermutex/unlocker:" + c.AppVersion(),
		"{global: {storageClass: fast}}": "ghcr.io/clustermutex/unlocker:" + c.AppVersion(), // of others
		"{global: {imageRegistry: 'm:5000'}, image: {repository: mirrored/unlocker, tag: a}}"://
		"m:5000/mirrored/unlocker:a",
		"{global: {imageRegistry: m/proxy}, image: {repository: 'localhost/unlocker', digest: 'sha256:" +
			strings.Repeat("a", 64) + "'}}": "m/proxy/unlocker@sha256:" + strings.Repeat("a", 64),
	} {
		r := mustRender(t, c, over(values(t, "policy: auto-unlock\netcd: {endpoints: [etcd:2379]}"), values(t, text)))
		images := 0
		for name, pod := range pods(t, r) {
			images++
			if got := pod.Spec.Containers[0].Image; got != want {
				t.Errorf("%s: the image of %s is %s, want %s", text, name, got, want)
			}
		}
		if images != 3 {
			t.Errorf("%s: %d images", text, images)
		}
	}
	r := mustRender(t, c, values(t,
		`{policy: alert-only, etcd: {endpoints: [etcd:2379]}, image: {pullSecrets: [one]},
			global: {imagePullSecrets: [two, {name: three}]}}`))
	for name, pod := range pods(t, r) {
		var got []string
		for _, secret := range pod.Spec.ImagePullSecrets {
			got = append(got, secret.Name)
		}
		if strings.Join(got, " ") != "one two three" {
			t.Errorf("%s has the secrets %q", name, got)
		}
	}
}

// As a dependency, the chart gets what its parent sets for all.
func TestAParentChartSetsRegistryAndSecretsOfAll(t *testing.T) {
	meta := &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "platform", Version: "1.0.0"}
	parent := &chart.Chart{Metadata: meta}
	parent.AddDependency(load(t))
	r := mustRender(t, parent, values(t, `global: {imageRegistry: "m:5000", imagePullSecrets: [{name: mirror}]}
unlocker: {policy: auto-unlock, etcd: {deploy: true}}`))
	images := 0
	for name, pod := range pods(t, r) {
		images++
		image := pod.Spec.Containers[0].Image
		if !strings.HasPrefix(image, "m:5000/") || len(pod.Spec.ImagePullSecrets) != 1 ||
			pod.Spec.ImagePullSecrets[0].Name != "mirror" {
			t.Errorf("%s has the image %s and the secrets %v", name, image, pod.Spec.ImagePullSecrets)
		}
	}
	if images != 4 {
		t.Errorf("%d images", images)
	}
}
