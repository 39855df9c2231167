package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// definitions are the files that define the kinds of the Prometheus operator and the Gateway API that the chart uses.
func definitions(t *testing.T) (files []string) {
	t.Helper()
	operator := filepath.Join(module(t, "github.com/prometheus-operator/prometheus-operator@v0.85.0"),
		"example/prometheus-operator-crd")
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
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

// guideFile are the blocks of docs/kubernetes.md that are for a file.
func guideFile(t *testing.T, name string) (all []string) {
	t.Helper()
	pattern := regexp.MustCompile("(?s)```yaml\n# " + regexp.QuoteMeta(name) + "\n(.*?)```")
	for _, block := range pattern.FindAllStringSubmatch(page(t, "docs/kubernetes.md"), -1) {
		all = append(all, block[1])
	}
	return all
}

// The values of a file build on each other, as somebody does who follows the guide from top to bottom. Releases of
// their own have files of their own.
func TestGuidesReleasesInstall(t *testing.T) {
	c := load(t)
	for name, blocks := range map[string]int{"values.yaml": 7, "witness.yaml": 2} {
		all := map[string]any{}
		for _, block := range guideFile(t, name) {
			blocks--
			all = over(all, values(t, block))
			if _, err := render(t, c, all); err != nil {
				t.Errorf("%s: %v, by\n%s", name, err, block)
			}
		}
		if blocks != 0 {
			t.Errorf("%s: %d blocks are missing", name, blocks)
		}
	}
}

// The proxy of the guide is the one whose pods are tested.
func TestGuidesProxyMatchesTheScenario(t *testing.T) {
	scenario := scenarios(t)["oauth2-proxy"]["mutexdash"].(map[string]any)
	delete(scenario, "ingress") // has a step of its own
	for _, block := range guideFile(t, "values.yaml") {
		if strings.Contains(block, "oauth2-proxy:v") {
			if got := values(t, block)["mutexdash"]; !reflect.DeepEqual(got, any(scenario)) {
				t.Errorf("the guide has\n%v\nthe scenario\n%v", got, scenario)
			}
			return
		}
	}
	t.Error("the guide has no proxy")
}

const (
	ours = "https://github.com/clustermutex/unlocker/"
	raw  = "https://raw.githubusercontent.com/clustermutex/unlocker/main/"
)

// Artifact Hub shows what Chart.yaml tells it: images that are pulled, and links and pictures that are there.
func TestArtifactHubMetadataIsComplete(t *testing.T) {
	c := load(t)
	hub := func(name string) (list []struct{ Name, Title, URL, Image string }) {
		t.Helper()
		if err := yaml.UnmarshalStrict([]byte(c.Metadata.Annotations["artifacthub.io/"+name]), &list); err != nil ||
			len(list) < 2 {
			t.Errorf("%s: %v, %v", name, list, err)
		}
		return list
	}
	said := sets.New[string]()
	pulled := sets.New[string]()
	for _, image := range hub("images") {
		said.Insert(image.Image)
	}
	for _, pod := range pods(t, mustRender(t, c, scenarios(t)["trial"])) {
		pulled.Insert(pod.Spec.Containers[0].Image)
	}
	if !said.Equal(pulled) {
		t.Errorf("said are the images %q, pulled are %q", sets.List(said), sets.List(pulled))
	}
	urls := []string{c.Metadata.Icon}
	for _, shown := range slices.Concat(hub("links"), hub("screenshots")) {
		if shown.Name == "" && shown.Title == "" {
			t.Errorf("%s has no name", shown.URL)
		}
		urls = append(urls, shown.URL)
	}
	for _, url := range urls {
		file, pictures := strings.CutPrefix(url, raw)
		if !pictures {
			file, _ = strings.CutPrefix(url, ours+"blob/main/")
		}
		if url == ours+"issues" {
			continue
		}
		if _, err := os.Stat(repository + "/" + file); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
