package chart

import (
	"os"
	"regexp"
	"testing"
)

// The values of docs/kubernetes.md build on each other, as somebody does who follows it from top to bottom.
func TestTheValuesOfTheGuideInstall(t *testing.T) {
	page, err := os.ReadFile(repository + "/docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n# values.yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 6 {
		t.Errorf("only %d blocks of values are found", len(blocks))
	}
	c, all := load(t), map[string]any{}
	for _, block := range blocks {
		all = over(all, values(t, block[1]))
		if _, err := render(t, c, all); err != nil {
			t.Errorf("%v, by\n%s", err, block[1])
		}
	}
}
