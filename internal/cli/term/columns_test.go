package term_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/cli/term"
)

func TestCutTextFitsItsColumns(t *testing.T) {
	for _, s := range []string{"a", "漢字漢字漢字漢字", "a漢b漢c漢d漢", "e\u0301e\u0301e\u0301", strings.Repeat("x", 40)} {
		if clipped := term.Clip(s, 10); term.Columns(clipped) > 10 {
			t.Errorf("%q cut to 10 columns is %q, which has %d", s, clipped, term.Columns(clipped))
		}
	}
}

func TestABacktraceKeepsItsLinesAndIndents(t *testing.T) {
	got := term.Lines("main.go:12 in main.run\n\tmain.go:3 in main.main\r\n  \x1b[2J\n\n")
	want := []string{"main.go:12 in main.run", `    main.go:3 in main.main\r`, `  \x1b[2J`}
	if !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
}

func TestColumnsAreThoseOfATerminal(t *testing.T) {
	for s, want := range map[string]int{"abc": 3, "漢字": 4, "e\u0301": 1, "🔒": 2, "👩‍💻": 2, "ｱ": 1, "": 0, "…": 1} {
		if got := term.Columns(s); got != want {
			t.Errorf("%q takes %d columns, want %d", s, got, want)
		}
	}
}
