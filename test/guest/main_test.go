package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestForcedVersionsMatchTheDocumentation(t *testing.T) {
	page := read(t, "../../docs/client.md")
	forced := read(t, "../../go.mod")
	_, told, _ := strings.Cut(page, "**Versions.**")
	told, _, _ = strings.Cut(told, "\n\n")
	told = strings.ReplaceAll(told, "\n", " ")
	versions := regexp.MustCompile("`([a-z0-9./-]+)` (v[0-9]+.[0-9]+.[0-9]+)").FindAllStringSubmatch(told, -1)
	if len(versions) < 5 {
		t.Errorf("the page names %d versions", len(versions))
	}
	for _, v := range versions {
		if !strings.Contains(forced, "\t"+v[1]+" "+v[2]+"\n") {
			t.Errorf("our go.mod does not ask for %s %s", v[1], v[2])
		}
	}
	for _, line := range strings.Split(read(t, "go.mod"), "\n") {
		asked := strings.Fields(line)
		if len(asked) == 2 && strings.HasPrefix(asked[1], "v") && asked[1] != "v0.0.0" &&
			!strings.Contains(told, "`"+asked[0]+"` "+asked[1]) {
			t.Errorf("the page does not say that we ask for %s %s", asked[0], asked[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
