package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schemas writes JSON schemas of all kinds that we know into a directory, named as kubeconform looks for them. They are
// made from what the projects put into their Go modules, so that nobody has to be asked but the module proxy.
func schemas(t *testing.T) (directory string) {
	t.Helper()
	directory = t.TempDir()
	fromSwagger(t, directory, filepath.Join(module(t, "k8s.io/kubernetes@"+kubernetes),
		"api/openapi-spec/swagger.json"))
	for _, file := range definitions(t) {
		fromCRD(t, directory, file)
	}
	return directory
}

// definitions are the files that define the kinds of the Prometheus operator and the Gateway API that the chart uses.
func definitions(t *testing.T) (files []string) {
	t.Helper()
	operator := filepath.Join(module(t, "github.com/prometheus-operator/prometheus-operator@v0.85.0"),
		"example/prometheus-operator-crd")
	for _, kind := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		files = append(files, filepath.Join(operator, "monitoring.coreos.com_"+kind+".yaml"))
	}
	return append(files, filepath.Join(module(t, "sigs.k8s.io/gateway-api@v1.4.0"),
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"))
}

// module is where the Go command keeps a module, after it has checked its sum.
func module(t *testing.T, version string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", version).Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", version, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

// strict refuses members that a schema does not know, and writes the two types that are more than one in a way that
// schemas have.
func strict(schema any) any {
	switch s := schema.(type) {
	case []any:
		for i := range s {
			s[i] = strict(s[i])
		}
	case map[string]any:
		if s["format"] == "int-or-string" || s["x-kubernetes-int-or-string"] == true {
			return map[string]any{"type": []any{"integer", "string"}}
		}
		for name, inner := range s {
			s[name] = strict(inner)
		}
		_, members := s["properties"].(map[string]any)
		_, decided := s["additionalProperties"]
		if members && !decided && s["x-kubernetes-preserve-unknown-fields"] != true {
			s["additionalProperties"] = false
		}
	}
	return schema
}

func fromSwagger(t *testing.T, directory, file string) {
	t.Helper()
	var swagger struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	unmarshal(t, file, &swagger)
	for name, definition := range swagger.Definitions {
		swagger.Definitions[name] = strict(definition).(map[string]any)
		if strings.HasSuffix(name, ".resource.Quantity") {
			swagger.Definitions[name] = map[string]any{"type": []any{"string", "number"}}
		}
	}
	marshal(t, filepath.Join(directory, "definitions.json"), swagger)
	for name, definition := range swagger.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // an option or a list of everything
		}
		k := kinds[0].(map[string]any)
		write(t, directory, k["kind"], k["group"], k["version"],
			map[string]any{"$ref": "definitions.json#/definitions/" + name})
	}
}

func fromCRD(t *testing.T, directory, file string) {
	t.Helper()
	var crd struct {
		Spec struct {
			Group    string                `json:"group"`
			Names    struct{ Kind string } `json:"names"`
			Versions []struct {
				Name   string                        `json:"name"`
				Schema struct{ OpenAPIV3Schema any } `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	unmarshal(t, file, &crd)
	const meta = "definitions.json#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	for _, v := range crd.Spec.Versions {
		schema := strict(v.Schema.OpenAPIV3Schema)
		if top, ok := schema.(map[string]any); ok {
			top["properties"].(map[string]any)["metadata"] = map[string]any{"$ref": meta}
		}
		write(t, directory, crd.Spec.Names.Kind, crd.Spec.Group, v.Name, schema)
	}
}

func write(t *testing.T, directory string, kind, group, version, schema any) {
	t.Helper()
	first, _, _ := strings.Cut(fmt.Sprint(group), ".")
	parts := []string{fmt.Sprint(kind)}
	if first != "" {
		parts = append(parts, first)
	}
	name := strings.ToLower(strings.Join(append(parts, fmt.Sprint(version)), "-"))
	marshal(t, filepath.Join(directory, name+".json"), schema)
}

func unmarshal(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	// JSON is YAML, too, but Kubernetes' four megabytes take seconds as such
	if err == nil && strings.HasSuffix(file, ".json") {
		err = json.Unmarshal(text, into)
	} else if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func marshal(t *testing.T, file string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
