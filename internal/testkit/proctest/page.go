package proctest

import (
	"regexp"
	"strings"
)

// Shows reports whether a page shows what was printed. In the page, … stands for anything within a line, and on a
// line of its own for any number of lines. Blanks count as one, because the width of a column depends on what is in it.
func Shows(shown, printed string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(shown) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	var got strings.Builder
	for line := range strings.Lines(printed) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(got.String())
}
