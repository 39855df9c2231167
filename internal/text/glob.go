package text

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Globs compiles patterns for lock names into one expression that matches whole names. An asterisk stands for any text,
// slashes included, because "billing/*" is meant to cover billing/invoice/42; a question mark stands for one character.
func Globs(patterns ...string) (*regexp.Regexp, error) {
	wildcards := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	alternatives := make([]string, len(patterns))
	for i, pattern := range patterns {
		if !utf8.ValidString(pattern) {
			return nil, fmt.Errorf("pattern %s: not valid UTF-8", Visible(pattern))
		}
		alternatives[i] = wildcards.Replace(regexp.QuoteMeta(pattern))
	}
	return regexp.Compile(`(?s)^(?:` + strings.Join(alternatives, "|") + `)$`)
}
