package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/helm-unittest/helm-unittest/pkg/unittest"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/formatter"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/printer"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

var update = flag.Bool("update", false, "write the table of values into the chart's README.md")

// setting is one line of values.yaml.
type setting struct {
	path, value, comment string
	whole                bool // a value in itself, not a group of settings
}

// settings are those of values.yaml in their order.
func settings(t *testing.T) (all []setting) {
	t.Helper()
	var document yaml.Node
	must(t, yaml.Unmarshal([]byte(read(t, directory+"/values.yaml")), &document))
	collect(t, document.Content[0], "", &all)
	return all
}

// free are groups whose members are not ours to name: they come as one setting.
var free = []string{"commonLabels", "resources", "podSecurityContext", "securityContext", "monitoring.grafana.labels",
	"livenessProbe", "readinessProbe", "strategy", "updateStrategy"}

func collect(t *testing.T, mapping *yaml.Node, above string, all *[]setting) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		value := mapping.Content[i+1]
		s := setting{path: above + key.Value, comment: comment(key.HeadComment)}
		s.whole = value.Kind != yaml.MappingNode || len(value.Content) == 0 ||
			slices.ContainsFunc(free, func(f string) bool { return s.path == f || strings.HasSuffix(s.path, "."+f) })
		if s.whole {
			s.value = compact(t, value)
		}
		*all = append(*all, s)
		if !s.whole {
			collect(t, value, s.path+".", all)
		}
	}
}

// comment is the paragraph next to a key, as one line. What stands before it, as on top of the file, is no part of it.
func comment(head string) string {
	paragraphs := strings.Split(head, "\n\n")
	var lines []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.Join(lines, " ")
}

func compact(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var v any
	must(t, node.Decode(&v))
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
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
		if !inValues[path] {
			t.Errorf("%s is in the schema and not in values.yaml", path)
		}
	}
}

// members collects the paths of a schema. It does not go below values that values.yaml has as a whole.
func members(root, schema map[string]any, above string, inValues, found map[string]bool) {
	if ref, ok := schema["$ref"].(string); ok {
		definitions := root["definitions"].(map[string]any)
		schema = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
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

const begin, end = "<!-- values: written by `make chart-files` -->\n", "<!-- end of values -->"

func TestTheTableOfValuesIsThatOfTheChart(t *testing.T) {
	file := directory + "/README.md"
	text := read(t, file)
	head, rest, found := strings.Cut(text, begin)
	_, tail, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the table", file)
	}
	now := head + begin + table(t) + end + tail
	if *update {
		must(t, os.WriteFile(file, []byte(now), 0o644))
	} else if text != now {
		t.Errorf("%s is out of date: make chart-files", file)
	}
}

// table has a line for each setting, and one for what several programs have alike.
func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| value | default | meaning |\n|---|---|---|\n")
	all := settings(t)
	for i, s := range all {
		value := ""
		if s.whole {
			value = "`" + strings.ReplaceAll(s.value, "|", "\\|") + "`"
		}
		if slices.ContainsFunc(all[:i], s.like) {
			continue
		}
		paths := "`" + s.path + "`"
		for _, other := range all[i+1:] {
			if other.like(s) {
				paths += ", `" + other.path + "`"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", paths, value, strings.ReplaceAll(s.comment, "|", "\\|"))
	}
	return b.String() + "\n"
}

// like reports whether another program has the same setting.
func (s setting) like(other setting) bool {
	_, rest, below := strings.Cut(s.path, ".")
	_, same, also := strings.Cut(other.path, ".")
	return below && also && s.path != other.path && rest == same && s.value == other.value && s.comment == other.comment
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
