// Package chart tests deploy/helm/unlocker with Helm's own packages: what `helm lint`, `helm template` and `helm
// unittest` do happens here in one process, which compiles in a third of the time that the helm command takes. Run it
// by `make chart`.
package chart

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	rbacv1 "k8s.io/api/rbac/v1"
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
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scenarios are the values of every supported way to install the chart.
func scenarios(t testing.TB) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(directory + "/ci/*-values.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("scenarios: %q, %v", files, err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			t.Fatal(err)
		}
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
		for _, text := range releaseutil.SplitManifests(files[file]) {
			o := object{text: text}
			if err := yaml.UnmarshalStrict([]byte(text), &o.fields); err != nil {
				return release{}, fmt.Errorf("%s: %w\n%s", file, err, text)
			}
			if len(o.fields) == 0 {
				continue // comments only
			}
			o.kind, _ = o.fields["kind"].(string)
			meta, _ := o.fields["metadata"].(map[string]any)
			o.name, _ = meta["name"].(string)
			r.objects = append(r.objects, o)
		}
	}
	return r, nil
}

// mustRender is render for values that have to work.
func mustRender(t testing.TB, c *chart.Chart, values map[string]any) release {
	t.Helper()
	r, err := render(t, c, values)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r release) kinds() []string {
	found := map[string]bool{}
	for _, o := range r.objects {
		found[o.kind] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// TestEveryScenarioIsWrittenDown leaves the objects for tests that start what is in them.
func TestEveryScenarioIsWrittenDown(t *testing.T) {
	c := load(t)
	for name, values := range scenarios(t) {
		r := mustRender(t, c, values)
		if r.notes == "" || len(r.objects) < 3 {
			t.Errorf("%s: %d objects, and notes of %d bytes", name, len(r.objects), len(r.notes))
		}
		if *rendered == "" {
			continue
		}
		var all []string
		for _, o := range r.objects {
			all = append(all, o.text)
		}
		if err := os.MkdirAll(*rendered, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*rendered, name+".yaml"), []byte(strings.Join(all, "\n---\n")),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheKindsOfOthersAreWrittenDown leaves what makes an API server know them.
func TestTheKindsOfOthersAreWrittenDown(t *testing.T) {
	files := definitions(t)
	if len(files) != 4 {
		t.Errorf("%q", files)
	}
	if *rendered == "" {
		return
	}
	if err := os.MkdirAll(filepath.Join(*rendered, "crds"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(*rendered, "crds", filepath.Base(file)), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNobodyGetsRightsOrAnAccountOfTheCluster(t *testing.T) {
	c := load(t)
	for name, values := range scenarios(t) {
		for _, o := range mustRender(t, c, values).objects {
			witness := values["kubernetes"] != nil && strings.Contains(o.kind, "Role")
			if strings.Contains(o.kind, "Role") && !witness || strings.Contains(o.kind, "Webhook") ||
				o.kind == "CustomResourceDefinition" || o.kind == "Secret" {
				t.Errorf("%s: a %s", name, o.kind)
			}
		}
	}
}

// The unlocker sees pods if it is to be a witness, and may do nothing else in any scenario.
func TestTheWitnessMaySeePodsAlone(t *testing.T) {
	c := load(t)
	roles := 0
	for name, values := range scenarios(t) {
		for _, o := range mustRender(t, c, values).objects {
			if o.kind != "Role" && o.kind != "ClusterRole" {
				continue
			}
			roles++
			var role rbacv1.Role
			decode(t, o, &role)
			want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"},
				Verbs: []string{"get", "list", "watch"}}}
			if !reflect.DeepEqual(role.Rules, want) {
				t.Errorf("%s: %s allows %v", name, o.name, role.Rules)
			}
		}
	}
	if roles != 3 {
		t.Errorf("%d roles, want one for all namespaces and one for each of two", roles)
	}
}

// A cluster does not know the kinds of operators unless they are installed.
func TestOtherPeoplesKindsComeOnlyWhenAskedFor(t *testing.T) {
	known := []string{"ConfigMap", "DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "Pod", "PodDisruptionBudget",
		"Service", "ServiceAccount", "StatefulSet", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
	c := load(t)
	for name, values := range scenarios(t) {
		for _, kind := range mustRender(t, c, values).kinds() {
			asked := values["monitoring"] != nil || name == "httproute"
			if !slices.Contains(known, kind) && !asked {
				t.Errorf("%s: a %s", name, kind)
			}
		}
	}
}
