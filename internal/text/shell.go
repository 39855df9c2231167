package text

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Placeholder is where a command line wants a reason. mutexctl refuses it as one.
const Placeholder = "REASON"

// Mutexctl returns a command line of mutexctl about a lock. Flags and their values are words, of which any may be
// hostile; an empty one becomes the placeholder.
func Mutexctl(command, lock string, flags ...string) string {
	line := "mutexctl " + command
	operand := " " + ShellOperand(lock)
	if !strings.HasPrefix(lock, "-") { // else it ends the flags
		line += operand
		operand = ""
	}
	for _, word := range flags {
		if word == "" {
			line += " '" + Placeholder + "'"
			continue
		}
		line += " " + ShellWord(word)
	}
	return line + operand
}

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

// Globs are patterns for whole names. An asterisk stands for any text, slashes included, so that "billing/*" matches
// billing/invoice/42; a question mark stands for one character.
type Globs []string

// Match reports whether one of the patterns matches the name.
func (g Globs) Match(name string) bool {
	return slices.ContainsFunc(g, func(pattern string) bool { return matchGlob(pattern, name) })
}

// matchGlob compares character by character. Where they differ, the last asterisk takes one character more.
func matchGlob(pattern, name string) bool {
	p, n := 0, 0
	afterStar, starEnd := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			p++
			afterStar, starEnd = p, n
		case p < len(pattern) && pattern[p] == '?':
			p++
			n += firstRune(name[n:])
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case afterStar >= 0:
			starEnd += firstRune(name[starEnd:])
			p, n = afterStar, starEnd
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func firstRune(s string) int {
	_, size := utf8.DecodeRuneInString(s)
	return size
}
