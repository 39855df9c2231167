package proctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// DocumentedTables expects the first table below each of these headings of a page to be this one, or writes it there.
func DocumentedTables(t testing.TB, file string, update bool, want map[string]string) {
	t.Helper()
	for heading, now := range want {
		GoldenPart(t, file, update, `\n## `+regexp.QuoteMeta(heading)+`\n(?:\n|[^|\n].*\n)*((?:\|.*\n)+)`, now)
	}
}

// GoldenPart expects the group of a pattern, where it first matches in a file, to be this text, or writes it there.
func GoldenPart(t testing.TB, file string, update bool, pattern, now string) {
	t.Helper()
	text, err := os.ReadFile(file)
	Must(t, err)
	at := regexp.MustCompile(pattern).FindSubmatchIndex(text)
	if at == nil {
		t.Fatalf("%s has no %q", file, pattern)
	}
	Golden(t, file, update, string(text[:at[2]])+now+string(text[at[3]:]))
}

// Golden expects a file to have this text, or writes it.
func Golden(t testing.TB, file string, update bool, now string) {
	t.Helper()
	if update {
		Must(t, os.WriteFile(file, []byte(now), 0o644))
	}
	written, err := os.ReadFile(file)
	Must(t, err)
	if diff := cmp.Diff(strings.Split(string(written), "\n"), strings.Split(now, "\n")); diff != "" {
		t.Errorf("%s (-) differs from the program (+); make docs, or the test with -update, writes it:\n%s",
			filepath.Base(file), diff)
	}
}
