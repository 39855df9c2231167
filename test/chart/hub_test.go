package chart

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

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
	pulled := map[string]bool{}
	for _, pod := range pods(t, mustRender(t, c, scenarios(t)["trial"])) {
		pulled[pod.Spec.Containers[0].Image] = true
	}
	var said []string
	for _, image := range hub("images") {
		said = append(said, image.Image)
	}
	if slices.Sort(said); !slices.Equal(said, slices.Sorted(maps.Keys(pulled))) {
		t.Errorf("said are the images %q, pulled are %q", said, slices.Sorted(maps.Keys(pulled)))
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
