package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

const (
	ours = "https://github.com/clustermutex/unlocker/"
	raw  = "https://raw.githubusercontent.com/clustermutex/unlocker/main/"
)

// Artifact Hub shows what Chart.yaml tells it: images that are pulled, and links and pictures that are there.
func TestWhatArtifactHubShowsIsThere(t *testing.T) {
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
