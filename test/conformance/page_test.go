//go:build conformance

package conformance

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/conformance.md")

// TestPage wants the table of checks in docs/conformance.md to be that of the code. That the rules are there is tested
// with all other links of the documentation.
func TestPage(t *testing.T) {
	const page = "../../docs/conformance.md"
	const mark = "-args -update`. -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), mark)
	want := before + mark + table()
	switch {
	case !found:
		t.Errorf("%s has no line that ends in %q", page, mark)
	case *update:
		err = os.WriteFile(page, []byte(want), 0o600)
	case want != string(text):
		t.Errorf("the table in %s is not up to date", page)
	}
	if err != nil {
		t.Error(err)
	}
}

// table is one line for each check, whose name leads to its rule.
func table() string {
	var b strings.Builder
	b.WriteString("\n| check | what it wants | |\n|---|---|---|\n")
	for _, c := range checks() {
		notes := slices.Clone(c.needs)
		if c.pair != nil {
			notes = append(notes, "pairs")
		}
		if c.short {
			notes = append(notes, "short")
		}
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s |\n", c.name, c.rule, c.wants, strings.Join(notes, ", "))
	}
	return b.String()
}
