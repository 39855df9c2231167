package text

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ShellOperand is ShellWord for an operand of a command, which is not an option even if it begins with a dash.
func ShellOperand(word string) string {
	if strings.HasPrefix(word, "-") {
		return "-- " + quote(word)
	}
	return ShellWord(word)
}

// ShellWord quotes a word for a POSIX shell if needed. Characters that a terminal could hide are escaped in $'…'.
func ShellWord(word string) string {
	if word == "" || strings.TrimFunc(word, isPlain) != "" {
		return quote(word)
	}
	return word
}

// isPlain reports whether a character means only itself in a shell.
func isPlain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.ContainsRune("-_./:@%+=,", c)
}

func quote(word string) string {
	if Prose(word) == word {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString("'")
	return b.String()
}

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
