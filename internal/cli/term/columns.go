package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
)

// lines are the lines of a longer text in visible form; the blanks and tabs that indent a line stay, as blanks.
func lines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		trimmed := strings.TrimLeft(line, " \t")
		indent := strings.ReplaceAll(line[:len(line)-len(trimmed)], "\t", "    ")
		out = append(out, indent+text.Visible(trimmed))
	}
	return out
}

// columns is the number of terminal columns that visible text takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0x1f300 &&
			r < 0x1fb00, r > 0xff00 && r < 0xff61:
			n += 2
		default:
			n++
		}
	}
	return n
}

// clip shortens visible text to so many columns; what is cut is marked with an ellipsis.
func clip(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += columns(string(r)); n >= most {
			return s[:i] + "…"
		}
	}
	return s
}
