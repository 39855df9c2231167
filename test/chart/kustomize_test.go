package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const kustomize = repository + "/deploy/kustomize"

// base are the files of the base, as the chart makes them of deploy/kustomize/values.yaml. What differs from one
// installation to the next, and is a flag, comes from a ConfigMap that kustomize writes. What only Helm needs is left
// out.
func base(t *testing.T) map[string]string {
	t.Helper()
	settings := strings.NewReplacer("--policy=alert-only", "--policy=$(POLICY)",
		"--etcd.endpoints=etcd:2379", "--etcd.endpoints=$(ETCD_ENDPOINTS)",
		"--locks.prefix=/mutexes/", "--locks.prefix=$(LOCKS_PREFIX)",
		"locks-unlocker-mutexdash.locking", "unlocker-mutexdash.$(NAMESPACE)", "locks-unlocker", "unlocker")
	helms := regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/(managed-by|version|instance)|` +
		`namespace): .*\n`)
	files := map[string]string{}
	for _, o := range mustRender(t, load(t), values(t, read(t, kustomize+"/values.yaml"))).objects {
		if o.kind == "Pod" { // of helm test
			continue
		}
		text := helms.ReplaceAllString(settings.Replace(o.text), "")
		name := strings.TrimPrefix(strings.TrimPrefix(o.name, "locks-unlocker"), "-")
		if name == "" {
			name = "unlocker"
		}
		files[name+"-"+strings.ToLower(o.kind)+".yaml"] = "# Written by `make chart-files`.\n" +
			strings.TrimSpace(text[strings.Index(text, "apiVersion"):]) + "\n"
	}
	return files
}

// The base is the chart's, file by file.
func TestTheBaseOfKustomizeIsThatOfTheChart(t *testing.T) {
	files := base(t)
	for name, want := range files {
		path := filepath.Join(kustomize, "base", name)
		if *update {
			must(t, os.WriteFile(path, []byte(want), 0o644))
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is out of date (%v): make chart-files", path, err)
		}
	}
	var k struct{ Resources []string }
	unmarshal(t, kustomize+"/base/kustomization.yaml", &k)
	if list := slices.Sorted(maps.Keys(files)); !slices.Equal(k.Resources, list) {
		t.Errorf("the base has %q, and the chart makes %q", k.Resources, list)
	}
}

// built is what `kubectl kustomize` prints for a directory.
func built(t *testing.T, directory string) release {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	must(t, err)
	text, err := all.AsYaml()
	must(t, err)
	writeDown(t, "kustomize/example.yaml", string(text))
	var r release
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		must(t, r.add(document))
	}
	return r
}

// An installation by kustomize has the flags of the one by helm, with what the example sets in place of the values.
func TestTheExampleOfKustomizeInstalls(t *testing.T) {
	r := built(t, kustomize+"/example")
	data := map[string]map[string]string{}
	for _, o := range r.objects {
		if o.fields["metadata"].(map[string]any)["namespace"] != "locking" {
			t.Errorf("%s %s is in no namespace", o.kind, o.name)
		}
		if o.kind == "ConfigMap" {
			var m corev1.ConfigMap
			decode(t, o, &m)
			data[o.name] = m.Data
		}
	}
	installed := pods(t, r)
	byHelm := pods(t, mustRender(t, load(t), values(t, `
policy: auto-unlock
etcd: {endpoints: ["https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"], ca: {secret: unlocker-etcd}}
unlocker: {etcd: {clientCert: {secret: unlocker-etcd}}}
mutexdash: {etcd: {clientCert: {secret: mutexdash-etcd}}, environment: prod-eu}
`)))
	for _, name := range []string{"unlocker", "unlocker-mutexdash"} {
		got := installed[name].Spec.Containers[0]
		want := byHelm["locks-"+name].Spec.Containers[0]
		if got.Image != want.Image {
			t.Errorf("%s: the image is %s, want %s", name, got.Image, want.Image)
		}
		slices.Sort(got.Args)
		slices.Sort(want.Args)
		args := strings.Join(got.Args, "\n")
		for _, variable := range got.Env {
			if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				value, ok := data[from.ConfigMapKeyRef.Name][from.ConfigMapKeyRef.Key]
				if !ok {
					t.Errorf("%s: %s comes from nowhere", name, variable.Name)
				}
				args = strings.ReplaceAll(args, "$("+variable.Name+")", value)
			}
		}
		args = strings.ReplaceAll(args, "$(NAMESPACE)", "locking")
		wanted := strings.ReplaceAll(strings.Join(want.Args, "\n"), "locks-unlocker", "unlocker")
		if args != wanted {
			t.Errorf("%s: by kustomize\n%s\nby helm\n%s", name, args, wanted)
		}
	}
	for of, pod := range installed {
		for _, problem := range beyondRestricted(pod.Spec) {
			t.Errorf("the pod of %s: %s", of, problem)
		}
	}
}
