package chart

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

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
func TestTheReleasesOfTheGuideInstall(t *testing.T) {
	c := load(t)
	for name, blocks := range map[string]int{"values.yaml": 8, "witness.yaml": 2, "dashboard.yaml": 1} {
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
func TestTheProxyOfTheGuideIsThatOfTheScenario(t *testing.T) {
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
