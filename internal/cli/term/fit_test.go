package term_test

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/cli/term"
)

func TestATableIsCutToTheTerminalStepByStep(t *testing.T) {
	fit := func(width int) (said string, lines []string) {
		table := term.Table{Whole: true}
		table.Row("LOCK", "HOST", "WHY")
		table.Row("billing/2026-08/eu-west", "web-1", "漢字 its deadline passed")
		table.Row("a", "-", "-")
		said = table.Fit(width, []term.Less{term.Cut("WHY", 10), term.Drop("HOST"), term.Cut("LOCK", 12),
			term.Drop("NONE"), term.Drop("WHY")})
		var b strings.Builder
		if err := table.Write(&b); err != nil {
			t.Fatal(err)
		}
		return said, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	for width, want := range map[int][2]string{
		0:  {"", "billing/2026-08/eu-west  web-1  漢字 its deadline passed"},
		56: {"", "billing/2026-08/eu-west  web-1  漢字 its deadline passed"},
		50: {"50 columns: WHY cut; -o wide has all", "billing/2026-08/eu-west  web-1  漢字 its deadline…"},
		38: {"38 columns: WHY cut, without HOST; -o wide has all", "billing/2026-08/eu-west  漢字 its …"},
		30: {"30 columns: WHY, LOCK cut, without HOST; -o wide has all", "billing/202…u-west  漢字 its …"},
		20: {"20 columns: LOCK cut, without HOST, WHY; -o wide has all", "billing…west"},
	} {
		said, lines := fit(width)
		if said != want[0] || lines[1] != want[1] {
			t.Errorf("in %d columns: %q\n%s\nwant %q\n%s", width, said, lines[1], want[0], want[1])
		}
		for _, line := range lines {
			if width > 0 && term.Columns(line) > width {
				t.Errorf("in %d columns: %q has %d", width, line, term.Columns(line))
			}
		}
	}
}
