package term_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestCutTextFitsItsColumns(t *testing.T) {
	for _, s := range []string{"a", "漢字漢字漢字漢字", "a漢b漢c漢d漢", "e\u0301e\u0301e\u0301", strings.Repeat("x", 40)} {
		if clipped := term.Clip(s, 10); term.Columns(clipped) > 10 {
			t.Errorf("%q cut to 10 columns is %q, which has %d", s, clipped, term.Columns(clipped))
		}
	}
}

func TestBacktraceKeepsLinesAndIndents(t *testing.T) {
	got := term.Lines("main.go:12 in main.run\n\tmain.go:3 in main.main\r\n  \x1b[2J\n\n")
	want := []string{"main.go:12 in main.run", `    main.go:3 in main.main\r`, `  \x1b[2J`}
	if !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
}

func TestColumnsMatchATerminal(t *testing.T) {
	for s, want := range map[string]int{"abc": 3, "漢字": 4, "e\u0301": 1, "🔒": 2, "👩‍💻": 2, "ｱ": 1, "": 0, "…": 1} {
		if got := term.Columns(s); got != want {
			t.Errorf("%q takes %d columns, want %d", s, got, want)
		}
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	for width, want := range map[int][2]string{
		0:  {"", "billing/2026-08/eu-west  web-1  漢字 its deadline passed"},
		56: {"", "billing/2026-08/eu-west  web-1  漢字 its deadline passed"},
		50: {"50 columns: LOCK, WHY cut; -o wide has all", "billing/2…08/eu-west  web-1  漢字 its deadline pa…"},
		38: {"38 columns: LOCK, WHY cut, without HOST; -o wide has all", "billing/…8/eu-west  漢字 its deadline…"},
		20: {"20 columns: LOCK, WHY cut, without HOST; -o wide has all", "bill…west  漢字 its…"},
	} {
		table := term.Table{}
		table.Row("LOCK", "HOST", "WHY")
		table.Row("billing/2026-08/eu-west", "web-1", "漢字 its deadline passed")
		said := table.Fit(width, "NONE", "HOST")
		var b strings.Builder
		proctest.Must(t, table.Write(&b))
		line := strings.Split(b.String(), "\n")[1]
		if said != want[0] || line != want[1] || width > 0 && term.Columns(line) > width {
			t.Errorf("in %d columns: %q\n%s\nwant %q\n%s", width, said, line, want[0], want[1])
		}
	}
}
