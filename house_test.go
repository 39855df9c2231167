package unlocker_test

import (
	"os"
	"path"
	"strings"
	"testing"
)

// The diagram in docs/architecture.md has every package, and no other.
func TestDiagramHasEveryPackage(t *testing.T) {
	drawn := drawing(t)
	for room := range drawn {
		if info, err := os.Stat(room); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md draws %s: %v", room, err)
		}
	}
	for room := range rooms(t) {
		if !drawn[room] {
			t.Errorf("docs/architecture.md does not draw %s", room)
		}
	}
}

// drawing returns the folders of the drawing: two more spaces in front of a name lead one folder down.
func drawing(t *testing.T) map[string]bool {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "## The packages\n\n```\n")
	text, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("docs/architecture.md has no drawing")
	}
	folders := map[string]bool{}
	var at []string
	for line := range strings.SplitSeq(text, "\n") {
		name, _, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if folder, is := strings.CutSuffix(name, "/"); is && depth <= len(at) {
			at = append(at[:depth], folder)
			folders[path.Join(at...)] = true
		}
	}
	return folders
}

// rooms returns the folders below cmd, pkg and internal that have Go code besides tests.
func rooms(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, f := range sources(t) {
		if below("cmd", "pkg", "internal")(f.name) {
			found[path.Dir(f.name)] = true
		}
	}
	return found
}
