package site

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
)

// Shell quotes a word for a POSIX shell. What could hide in a terminal is written as an escape of $'…'.
func Shell(word string) string {
	if strings.HasPrefix(word, "-") {
		return "-- " + quote(word)
	}
	return argument(word)
}

// Mutexctl is the command line of a lock of this cluster. The flags are words, of which any may be hostile.
func (s *Site) Mutexctl(command, lock string, flags ...string) string {
	line := "mutexctl " + command + " "
	if s.URLs.Cluster != "" {
		line += "--cluster " + s.URLs.Cluster + " "
	}
	for _, word := range flags {
		line += argument(word) + " "
	}
	return line + Shell(lock)
}

// OfHold are the flags of mutexctl for a hold that somebody saw and what is done to it: the reason is an empty word if
// there is none yet, which mutexctl refuses and asks for.
func OfHold(uuid, reason, ticket string) []string {
	flags := []string{"--uuid", cmp.Or(uuid, "none"), "--reason", reason}
	if ticket != "" {
		flags = append(flags, "--ticket", ticket)
	}
	return flags
}

// argument quotes a word that may begin with a dash.
func argument(word string) string {
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
	if text.Prose(word) == word {
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
