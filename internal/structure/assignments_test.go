package structure_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"testing"
)

// A statement that assigns three values at once hides which belongs to which name. Swaps, and the headers of for, if
// and switch, have no other way.
func TestAssignmentsAreNotPacked(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, at := range packed(f.tree) {
			t.Errorf("%v assigns three values or more at once: a statement of its own for each is read once",
				f.set.Position(at))
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
