package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// decode reads what is wanted of an object. That there is nothing else in it, the API server says in test/kube.
func decode(t *testing.T, o object, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(o.text), into); err != nil {
		t.Fatalf("%s %s: %v", o.kind, o.name, err)
	}
}

// The notes after helm install fit what was installed.
func TestNotesDescribeTheInstallation(t *testing.T) {
	c := load(t)
	for name, want := range map[string]struct{ says, silent []string }{
		"minimal": {
			[]string{"alerts about stale locks and removes none", "port-forward svc/locks-unlocker-mutexdash 8080:80",
				"Anyone who can reach it may view it", "helm -n locking test locks", "The metrics are not scraped yet"},
			[]string{"for a trial"}},
		"dry-run": {[]string{"removes nothing", "logs deploy/locks-unlocker"},
			[]string{"removes locks of dead holders"}},
		"ingress": {[]string{"removes locks of dead holders", "https://tools.example/locks"},
			[]string{"port-forward"}},
		"servicemonitor":        {nil, []string{"The metrics are not scraped yet"}},
		"force-unlock-password": {nil, []string{"Anyone who can reach it may view it"}},
		"dashboard-only":        {[]string{"The dashboard is at"}, []string{"The unlocker"}},
		"trial": {[]string{"is for a trial",
			"mutexctl --etcd.endpoints=locks-unlocker-etcd:2379 reserve"}, nil},
		"force-unlock-certificate": {[]string{"https://locks.example"}, []string{"http://"}},
	} {
		notes := mustRender(t, c, scenarios(t)[name]).notes
		for _, text := range slices.Concat(want.says, want.silent) {
			if says := strings.Contains(notes, text); says != slices.Contains(want.says, text) {
				t.Errorf("%s: %q is said: %v, in\n%s", name, text, says, notes)
			}
		}
	}
}

// Grafana's sidecar takes files from ConfigMaps by their label; the files are the dashboards, byte for byte.
func TestDashboardsFitGrafanasSidecar(t *testing.T) {
	boards, err := filepath.Glob(repository + "/deploy/grafana/*.json")
	must(t, err)
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
			if original := page(t, "deploy/grafana/"+file); strings.TrimSpace(original) != strings.TrimSpace(text) {
				t.Errorf("%s in %s is not the dashboard: make chart-files", file, o.name)
			}
			found++
		}
	}
	if found != len(boards) || found == 0 {
		t.Errorf("%d of %d dashboards", found, len(boards))
	}
}

// walk visits every object in a tree of JSON with its path.
func walk(node any, visit func(path string, object map[string]any)) {
	var from func(path string, node any)
	from = func(path string, node any) {
		switch n := node.(type) {
		case []any:
			for _, inner := range n {
				from(path, inner)
			}
		case map[string]any:
			visit(path, n)
			for name, inner := range n {
				from(path+"/"+name, inner)
			}
		}
	}
	from("", node)
}

// A misspelled value is refused at any depth, since no group of values takes what it does not know.
func TestSchemaIsClosedAtEveryDepth(t *testing.T) {
	var schema map[string]any
	unmarshal(t, directory+"/values.schema.json", &schema)
	closed := 0
	walk(schema, func(path string, n map[string]any) {
		if _, group := n["properties"].(map[string]any); !group || path == "/properties" {
			return
		}
		closed++
		if decided, ok := n["additionalProperties"]; !ok || decided == true && path != "/properties/global" {
			t.Errorf("%s takes members that it does not know", path)
		}
	})
	if closed < 30 {
		t.Errorf("only %d groups are found", closed)
	}
}

// A mirror for all images, and what lets them be pulled, are set once, in a parent chart.
func TestParentChartSetsRegistryAndSecrets(t *testing.T) {
	parent := &chart.Chart{Metadata: &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "platform",
		Version: "1.0.0"}}
	c := load(t)
	parent.AddDependency(c)
	digest := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string]string{
		"{}":                             "ghcr.io/clustermutex/unlocker:" + c.AppVersion(),
		"{global: {imageRegistry: foo}}": "foo/clustermutex/unlocker:" + c.AppVersion(),
		"{global: {imageRegistry: ''}}":  "ghcr.io/clustermutex/unlocker:" + c.AppVersion(),
		"{global: {storageClass: fast}}": "ghcr.io/clustermutex/unlocker:" + c.AppVersion(), // of others
		"{global: {imageRegistry: 'm:5000'}, unlocker: {image: {repository: mirrored/unlocker, tag: a}}}"://
		"m:5000/mirrored/unlocker:a",
		"{global: {imageRegistry: m/proxy}, unlocker: {image: {repository: localhost/unlocker, digest: '" + digest +
			"'}}}": "m/proxy/unlocker@" + digest,
	} {
		r := mustRender(t, parent, over(values(t, `global: {imagePullSecrets: [two, {name: three}]}
unlocker: {policy: auto-unlock, etcd: {deploy: true}, image: {pullSecrets: [one]}}`), values(t, text)))
		registry, _, _ := strings.Cut(want, "/")
		all := pods(t, r)
		for name, pod := range all {
			image := pod.Spec.Containers[0].Image
			mirrored := registry == "ghcr.io" || strings.HasPrefix(image, registry+"/")
			if etcd := strings.HasSuffix(name, "-etcd"); !mirrored || image != want && !etcd {
				t.Errorf("%s: the image of %s is %s, want %s", text, name, image, want)
			}
			secrets := []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}, {Name: "three"}}
			if got := pod.Spec.ImagePullSecrets; !slices.Equal(got, secrets) {
				t.Errorf("%s has the secrets %v", name, got)
			}
		}
		if len(all) != 4 {
			t.Errorf("%s: %d images", text, len(all))
		}
	}
}
