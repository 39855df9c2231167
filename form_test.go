package unlocker_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A statement that assigns three values at once hides which belongs to which name. Swaps, and the headers of for, if
// and switch, have no other way.
func TestAStatementAssignsOneThought(t *testing.T) {
	for set, tree := range goFiles(t) {
		for _, at := range packed(tree) {
			t.Errorf("%v assigns three values or more at once: a statement of its own for each is read once",
				set.Position(at))
		}
	}
}

// A package comment that stops in mid-sentence was cut when its file was moved or merged. An example may end it.
func TestPackageCommentsEndWithASentence(t *testing.T) {
	for set, tree := range goFiles(t) {
		lines := strings.Split(strings.TrimRight(tree.Doc.Text(), "\n"), "\n")
		last := lines[len(lines)-1]
		if strings.HasPrefix(last, "\t") || last == "" || strings.HasSuffix(last, ".") {
			continue
		}
		t.Errorf("%v: the package comment stops in mid-sentence", set.Position(tree.Package))
	}
}

// goFiles parses all Go files of the repository.
func goFiles(t *testing.T) iter.Seq2[*token.FileSet, *ast.File] {
	return func(yield func(*token.FileSet, *ast.File) bool) {
		t.Helper()
		files := 0
		err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && file != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
				return filepath.SkipDir
			case !strings.HasSuffix(file, ".go"):
				return nil
			}
			files++
			set := token.NewFileSet()
			tree, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil && !yield(set, tree) {
				return fs.SkipAll
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if files < 100 {
			t.Errorf("only %d files were read", files)
		}
	}
}

// packed returns the places where a statement assigns three values or more from as many expressions.
func packed(tree *ast.File) (places []token.Pos) {
	headers := map[ast.Stmt]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			headers[n.Init] = true
			headers[n.Post] = true
		case *ast.IfStmt:
			headers[n.Init] = true
		case *ast.SwitchStmt:
			headers[n.Init] = true
		case *ast.AssignStmt:
			if len(n.Rhs) >= 3 && !headers[n] && !swaps(n) {
				places = append(places, n.Pos())
			}
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.VAR && len(v.Values) >= 3 {
					places = append(places, v.Pos())
				}
			}
		}
		return true
	})
	return places
}

// swaps reports whether an assignment moves values between its own variables.
func swaps(n *ast.AssignStmt) bool {
	var left []string
	for _, x := range n.Lhs {
		left = append(left, types.ExprString(x))
	}
	return slices.ContainsFunc(n.Rhs, func(x ast.Expr) bool { return slices.Contains(left, types.ExprString(x)) })
}

func TestPackedAssignmentsAreFound(t *testing.T) {
	for body, want := range map[string]int{
		"a, b, c := 1, 2, 3":      1,
		"var a, b, c = 1, 2, 3":   1,
		"x.a, x.b, x.c = 1, 2, 3": 1,
		"const a, b, c = 1, 2, 3": 0,
		"a, b, c := f()":          0,
		"a, b := 1, 2":            0,
		"a, b, c = b, c, a":       0,
		"for a, b, c := 1, 2, 3; a < b; a, b, c = c, b, 1 { }": 0,
		"if a, b, c := 1, 2, 3; a < b+c { }":                   0,
		"if true { a, b, c := 1, 2, 3 }":                       1,
	} {
		tree, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(packed(tree)); got != want {
			t.Errorf("%s: found %d, want %d", body, got, want)
		}
	}
}
