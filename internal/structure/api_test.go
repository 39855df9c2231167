package structure_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var update = flag.Bool("update", false, "write docs/api.txt")

// docs/api.txt lists what the public packages declare: removing or changing a line breaks users' programs.
func TestTheGoAPIKeepsItsPromises(t *testing.T) {
	const file = "docs/api.txt"
	now := publicAPI(t)
	if *update {
		proctest.Must(t, os.WriteFile("../../"+file, []byte(now), 0o644))
	}
	promised := read(t, file)
	if promised == now {
		return
	}
	declared := strings.Split(now, "\n")
	for line := range strings.Lines(promised) {
		if line := strings.TrimSuffix(line, "\n"); !slices.Contains(declared, line) {
			t.Errorf("this was promised and is gone, see docs/stability.md: %s", strings.TrimSpace(line))
		}
	}
	t.Errorf("%s is out of date: make api, and look at every line that goes", file)
}

// unpromised are packages below pkg whose API may change at any time.
func unpromised() []string { return []string{"pkg/staleness", "pkg/sweeper"} }

// publicAPI is every exported declaration of the promised packages, without comments and bodies. A function that
// returns an unexported type is for our own packages only.
func publicAPI(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	packages := map[string][]ast.Decl{}
	set := token.NewFileSet()
	for _, file := range glob(t, 50, "pkg/*/*.go") {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(unpromised(), path.Dir(file)) {
			continue
		}
		tree, err := parser.ParseFile(set, file, read(t, file), parser.SkipObjectResolution)
		proctest.Must(t, err)
		if name := path.Dir(file); ast.FileExports(tree) {
			packages[name] = append(packages[name], tree.Decls...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		var lines []string
		for _, d := range packages[name] {
			lines = append(lines, declaration(t, set, d))
		}
		slices.Sort(lines)
		b.WriteString("\n" + name + "\n\n" + strings.Join(lines, ""))
	}
	return b.String()
}

// declaration returns a line for a declaration, and one for each of its members.
func declaration(t *testing.T, set *token.FileSet, d ast.Decl) string {
	t.Helper()
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !token.IsExported(strings.TrimLeft(types.ExprString(d.Recv.List[0].Type), "*")) ||
			d.Type.Results != nil && isUnexported(d.Type.Results.List[0].Type) {
			return ""
		}
		d.Body = nil
		return strings.Join(strings.Fields(printed(t, set, d)), " ") + "\n"
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return ""
		}
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
				v.Values = nil // the words of an error are no promise
			}
		}
	}
	head, members, _ := strings.Cut(printed(t, set, d), "\n")
	head = strings.TrimSuffix(strings.TrimSuffix(head, " {"), " (")
	lines := []string{head}
	if head == "const" || head == "var" {
		lines = nil
	}
	for member := range strings.Lines(members) {
		if member = strings.Join(strings.Fields(member), " "); len(member) > 1 && !strings.HasPrefix(member, "//") {
			lines = append(lines, head+" "+member)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// isUnexported reports whether the type is one that only its package can name.
func isUnexported(of ast.Expr) bool {
	name, ok := of.(*ast.Ident)
	return ok && !token.IsExported(name.Name) && types.Universe.Lookup(name.Name) == nil
}

func printed(t *testing.T, set *token.FileSet, d ast.Decl) string {
	t.Helper()
	var b strings.Builder
	proctest.Must(t, printer.Fprint(&b, set, d))
	return b.String()
}
