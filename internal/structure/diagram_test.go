package structure_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"
)

// The diagram in docs/architecture.md has every package, and no other.
func TestDiagramHasEveryPackage(t *testing.T) {
	drawn := drawnFolders(t)
	for folder := range drawn {
		if info, err := fs.Stat(top, folder); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md draws %s: %v", folder, err)
		}
	}
	for folder := range packageFolders(t) {
		if !drawn[folder] {
			t.Errorf("docs/architecture.md does not draw %s", folder)
		}
	}
}

// drawnFolders returns the folders of the diagram: two more spaces in front of a name lead one folder down.
func drawnFolders(t *testing.T) map[string]bool {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "## The packages\n\n```\n")
	text, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("docs/architecture.md has no diagram")
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

// packageFolders returns the folders below cmd, pkg and internal that have Go code besides tests.
func packageFolders(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, f := range sources(t) {
		if below("cmd", "pkg", "internal")(f.name) {
			found[path.Dir(f.name)] = true
		}
	}
	return found
}
