package text

import (
	"fmt"
	"strings"
)

// ShellOperand is ShellWord for an operand of a command, which is no option even if it begins with a dash.
func ShellOperand(word string) string {
	if strings.HasPrefix(word, "-") {
		return "-- " + quote(word)
	}
	return ShellWord(word)
}

// ShellWord quotes a word for a POSIX shell where that is needed. What could hide in a terminal is written as an escape
// of $'…'.
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
