package chart

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/helm-unittest/helm-unittest/pkg/unittest"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/formatter"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/printer"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// setting is one line of values.yaml.
type setting struct {
	path, comment string
}

// settings are those of values.yaml in their order.
func settings(t *testing.T) (all []setting) {
	t.Helper()
	var document yaml.Node
	must(t, yaml.Unmarshal([]byte(read(t, directory+"/values.yaml")), &document))
	collect(document.Content[0], "", &all)
	return all
}

// free are groups whose members are not ours to name: they come as one setting.
var free = []string{"commonLabels", "resources", "podSecurityContext", "securityContext", "monitoring.grafana.labels",
	"livenessProbe", "readinessProbe", "strategy", "updateStrategy"}

func collect(mapping *yaml.Node, above string, all *[]setting) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		value := mapping.Content[i+1]
		s := setting{path: above + key.Value, comment: key.HeadComment}
		*all = append(*all, s)
		whole := slices.ContainsFunc(free,
			func(f string) bool { return s.path == f || strings.HasSuffix(s.path, "."+f) })
		if value.Kind == yaml.MappingNode && !whole {
			collect(value, s.path+".", all)
		}
	}
}

func TestEveryValueIsDocumented(t *testing.T) {
	all := settings(t)
	if len(all) < 100 {
		t.Errorf("only %d values are found", len(all))
	}
	for _, s := range all {
		if !strings.HasSuffix(s.comment, ".") {
			t.Errorf("%s: the comment is %q", s.path, s.comment)
		}
	}
}

// helms are values that Helm itself reads from a chart below another.
var helms = []string{"enabled", "tags", "exports"}

// The schema has every value of values.yaml, and vice versa.
func TestSchemaAndValuesHaveTheSameMembers(t *testing.T) {
	var schema map[string]any
	unmarshal(t, directory+"/values.schema.json", &schema)
	inValues := map[string]bool{}
	for _, s := range settings(t) {
		inValues[s.path] = true
	}
	inSchema := map[string]bool{}
	members(schema, schema, "", inValues, inSchema)
	for path := range inValues {
		if !inSchema[path] {
			t.Errorf("%s is in values.yaml and not in the schema", path)
		}
	}
	for path := range inSchema {
		if !inValues[path] && !slices.Contains(helms, path) {
			t.Errorf("%s is in the schema and not in values.yaml", path)
		}
	}
}

// members collects the paths of a schema. It does not go below values that values.yaml has as a whole.
func members(root, schema map[string]any, above string, inValues, found map[string]bool) {
	properties, _ := resolved(root, schema)["properties"].(map[string]any)
	for name, inner := range properties {
		path := above + name
		found[path] = true
		for below := range inValues {
			if strings.HasPrefix(below, path+".") {
				members(root, inner.(map[string]any), path+".", inValues, found)
				break
			}
		}
	}
}

// A parent chart has this one below two names, and brings whatever Helm reads of a dependency.
func TestChartIsADependency(t *testing.T) {
	const one = "{enabled: %t, tags: {a: true}, exports: {data: {a: b}}, " +
		"policy: alert-only, etcd: {endpoints: [etcd:2379]}}"
	const both = "global: {any: 1}\ntags: {team: true}\nunlocker: " + one + "\nother: " + one
	for enabled, unlockers := range map[bool]int{true: 1, false: 0} {
		all := values(t, fmt.Sprintf(both, enabled, true))
		parent := &chart.Chart{Metadata: &chart.Metadata{Name: "parent"}}
		parent.AddDependency(load(t))
		for name, alias := range map[string]string{"unlocker": "", "other": "other"} {
			parent.Metadata.Dependencies = append(parent.Metadata.Dependencies, &chart.Dependency{
				Name: "unlocker", Alias: alias, Version: ">=0.1.0", Condition: name + ".enabled",
				Tags:         []string{"team"},
				ImportValues: []any{"data", map[string]any{"child": "image", "parent": "locks"}},
			})
		}
		must(t, chartutil.ProcessDependenciesWithMerge(parent, all))
		counts := map[string]int{}
		for _, o := range mustRender(t, parent, all).objects {
			counts[o.kind+" "+o.name]++
		}
		if counts["Deployment locks-other"] != 1 || counts["Deployment locks-unlocker"] != unlockers {
			t.Errorf("enabled %t: %v", enabled, counts)
		}
	}
}

// Without any value of a scenario, the release is another: a template uses the value, and it is not the default. That
// every flag is in a scenario is for test/deploy.
func TestEveryValueOfAScenarioHasAnEffect(t *testing.T) {
	c := load(t)
	for scenario, values := range scenarios(t) {
		whole := mustRender(t, c, values)
		walk(values, func(path string, group map[string]any) {
			for _, name := range slices.Collect(maps.Keys(group)) {
				value := group[name]
				delete(group, name)
				if r, err := render(t, c, values); err == nil && reflect.DeepEqual(r, whole) {
					t.Errorf("%s: %s in %s changes nothing", scenario, name, path)
				}
				group[name] = value
			}
		})
	}
}

func TestLintIsClean(t *testing.T) {
	version := chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: "36"}
	for name, values := range scenarios(t) {
		for _, m := range lint.AllWithKubeVersion(directory, values, "locking", &version).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// The suites beside the chart are those of `helm unittest`; this runs them as it does.
func TestChartSuites(t *testing.T) {
	plain := false
	runner := unittest.TestRunner{
		Printer: printer.NewPrinter(os.Stdout, &plain), Formatter: formatter.NewFormatter("", "XUnit"),
		Strict: true, TestFiles: []string{"tests/*_test.yaml"},
	}
	if !runner.RunV3([]string{directory}) {
		t.Error("a suite failed")
	}
}
