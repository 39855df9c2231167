package text

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Globs compiles patterns for lock names into one expression that matches whole names. An asterisk stands for any text,
// slashes included, so that "billing/*" matches billing/invoice/42; a question mark stands for one character.
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

// Matches reports whether s matches the glob, in which only the asterisk is special and stands for any text. It is for
// searches over many texts, for which [Globs] would be slow.
func Matches(glob, s string) bool {
	first, rest, star := strings.Cut(glob, "*")
	if !star {
		return glob == s
	}
	s, ok := strings.CutPrefix(s, first)
	if !ok {
		return false
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
		rest = more
	}
}
