package structure_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

// top is the repository. Files are read below it, without another working directory: the go command caches the result of
// a test by the files that it opens.
var top = os.DirFS("../..")

// glob finds the files that match any of the patterns.
func glob(t *testing.T, atLeast int, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := fs.Glob(top, pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		all = append(all, files...)
	}
	if len(all) < atLeast {
		t.Fatalf("only these were found: %q", all)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := fs.ReadFile(top, file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// goFile is a Go file of the repository.
type goFile struct {
	name string // from the top, with slashes
	set  *token.FileSet
	tree *ast.File
}

// imports are the paths that it imports.
func (f goFile) imports() (all []string) {
	for _, i := range f.tree.Imports {
		all = append(all, strings.Trim(i.Path.Value, `"`))
	}
	return all
}

// goFiles parses all Go files of the repository.
func goFiles(t *testing.T) (files []goFile) {
	t.Helper()
	err := fs.WalkDir(top, ".", func(file string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "node_modules"
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && hidden:
			return fs.SkipDir
		case !strings.HasSuffix(file, ".go"):
			return nil
		}
		f := goFile{name: file, set: token.NewFileSet()}
		f.tree, err = parser.ParseFile(f.set, file, read(t, file), parser.ParseComments|parser.SkipObjectResolution)
		files = append(files, f)
		return err
	})
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files were read: %v", len(files), err)
	}
	return files
}

// sources are the files of the programs, without tests and benchmarks.
func sources(t *testing.T) []goFile {
	t.Helper()
	return slices.DeleteFunc(goFiles(t), func(f goFile) bool {
		return strings.HasSuffix(f.name, "_test.go") || below("test", "bench")(f.name)
	})
}

func below(dirs ...string) func(string) bool {
	return func(file string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
	}
}
