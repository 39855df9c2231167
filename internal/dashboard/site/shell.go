package site

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
)

// Shell quotes a word for a POSIX shell. What could hide in a terminal is written as an escape of $'…'.
func Shell(word string) string {
	plainWord := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("-_./:@%+=,", c)
	}
	switch {
	case word != "" && word[0] != '-' && strings.TrimFunc(word, plainWord) == "":
		return word
	case strings.HasPrefix(word, "-"):
		return "-- " + quote(word)
	}
	return quote(word)
}

// Mutexctl is the command line of a lock of this cluster.
func (s *Site) Mutexctl(command, lock string) string {
	line := "mutexctl " + command + " "
	if s.URLs.Cluster != "" {
		line += "--cluster " + s.URLs.Cluster + " "
	}
	return line + Shell(lock)
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
