package proctest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var table = regexp.MustCompile(`(?m)^\|.*\n(?:\|.*\n)*`)

// DocumentedTables expects the first table below each of these headings of a page to be this one, or writes it there.
func DocumentedTables(t testing.TB, file string, update bool, want map[string]string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for heading, now := range want {
		above, section, _ := strings.Cut(text, "\n## "+heading+"\n")
		at := table.FindStringIndex(section)
		if at == nil {
			t.Fatalf("%s has no table below %q", file, heading)
		}
		if written := section[at[0]:at[1]]; written != now && !update {
			t.Errorf("%s is out of date below %q: make docs (-page +programs)\n%s", file, heading,
				cmp.Diff(strings.Split(written, "\n"), strings.Split(now, "\n")))
		}
		text = above + "\n## " + heading + "\n" + section[:at[0]] + now + section[at[1]:]
	}
	if update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
