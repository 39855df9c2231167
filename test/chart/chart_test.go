// Package chart tests deploy/helm/unlocker with Helm's own packages: what `helm lint`, `helm template` and `helm
// unittest` do happens here in one process, which compiles in a third of the time that the helm command takes. Run it
// by `make chart`.
package chart

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../.."
	directory  = repository + "/deploy/helm/unlocker"
	// kubernetes is the release whose API server test/kube has accept all objects.
	kubernetes = "v1.36.3"
)

var rendered = flag.String("rendered", "",
	"directory to write the objects of every scenario into, for tests that run them")

func load(t testing.TB) *chart.Chart {
	t.Helper()
	c, err := loader.Load(directory)
	must(t, err)
	return c
}

// scenarios are the values of every supported way to install the chart.
func scenarios(t testing.TB) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(directory + "/ci/*-values.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("scenarios: %q, %v", files, err)
	}
	all := map[string]map[string]any{"generated": generated(t)}
	for _, file := range files {
		values, err := chartutil.ReadValuesFile(file)
		must(t, err)
		all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = values
	}
	return all
}

// object is one of the objects that a release consists of.
type object struct {
	kind, name string
	text       string
	fields     map[string]any
}

// release is what `helm template` prints: objects and notes.
type release struct {
	objects []object
	notes   string
}

// render does what `helm template locks` does, schema included.
func render(t testing.TB, c *chart.Chart, values map[string]any) (release, error) {
	t.Helper()
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: strings.Split(kubernetes, ".")[1]}
	options := chartutil.ReleaseOptions{Name: "locks", Namespace: "locking", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, caps)
	if err != nil {
		return release{}, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return release{}, err
	}
	var r release
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, "NOTES.txt") {
			r.notes = files[file]
			continue
		}
		manifests := releaseutil.SplitManifests(files[file])
		for _, name := range slices.Sorted(maps.Keys(manifests)) {
			if err := r.add(manifests[name]); err != nil {
				return release{}, fmt.Errorf("%s: %w\n%s", file, err, manifests[name])
			}
		}
	}
	return r, nil
}

// add adds the object in a text, if there is more than comments.
func (r *release) add(text string) error {
	o := object{text: text}
	if err := yaml.UnmarshalStrict([]byte(text), &o.fields); err != nil || len(o.fields) == 0 {
		return err
	}
	o.kind, _ = o.fields["kind"].(string)
	meta, _ := o.fields["metadata"].(map[string]any)
	o.name, _ = meta["name"].(string)
	r.objects = append(r.objects, o)
	return nil
}

// mustRender is render for values that have to work.
func mustRender(t testing.TB, c *chart.Chart, values map[string]any) release {
	t.Helper()
	r, err := render(t, c, values)
	must(t, err)
	return r
}

// writeDown leaves a file for tests that run what is in it.
func writeDown(t *testing.T, name, text string) {
	t.Helper()
	if *rendered == "" {
		return
	}
	path := filepath.Join(*rendered, name)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

// TestEveryScenarioIsWrittenDown leaves the objects for tests that start what is in them.
func TestEveryScenarioIsWrittenDown(t *testing.T) {
	c := load(t)
	for name, values := range scenarios(t) {
		r := mustRender(t, c, values)
		if r.notes == "" || len(r.objects) < 3 {
			t.Errorf("%s: %d objects, and notes of %d bytes", name, len(r.objects), len(r.notes))
		}
		var all []string
		for _, o := range r.objects {
			all = append(all, o.text)
		}
		writeDown(t, name+".yaml", strings.Join(all, "\n---\n"))
	}
}

// TestTheKindsOfOthersAreWrittenDown leaves what makes an API server know them.
func TestTheKindsOfOthersAreWrittenDown(t *testing.T) {
	for _, file := range definitions(t) {
		writeDown(t, "crds/"+filepath.Base(file), read(t, file))
	}
}

// No scenario has rights of the cluster, secrets, or kinds that a cluster knows only with an operator, unless they are
// asked for.
func TestScenariosHaveOnlyExpectedKinds(t *testing.T) {
	c := load(t)
	for name, values := range scenarios(t) {
		known := sets.New("ConfigMap", "DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "Pod",
			"PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet")
		if values["kubernetes"] != nil {
			known.Insert("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
		}
		if values["monitoring"] != nil {
			known.Insert("PrometheusRule", "ServiceMonitor")
		}
		if name == "httproute" {
			known.Insert("HTTPRoute")
		}
		for _, o := range mustRender(t, c, values).objects {
			if !known.Has(o.kind) {
				t.Errorf("%s: a %s", name, o.kind)
			}
		}
	}
}
