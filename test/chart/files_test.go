package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

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
	must(t, json.Unmarshal(out, &found))
	return found.Dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// unmarshal reads a file of YAML, or of JSON, which is YAML, too.
func unmarshal(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
