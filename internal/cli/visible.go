package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks may sit on one character: a pile of them paints over the lines above.
const maxMarks = 4

// visible writes text from outside so that every byte of it can be seen and none can drive a terminal: control characters,
// marks that turn the direction of writing, invisible characters and bytes that are not UTF-8 become escapes as in Go (\x1b,
// \u202e, \xff). So does a blank that begins or ends the text or follows another: a name can not play two columns. A
// backslash is doubled, which makes the form readable back with [parseVisible].
func visible(s string) string { return escape(s, true) }

// prose is visible for a sentence that quotes text from outside and has escaped some of it already.
func prose(s string) string { return escape(s, false) }

func escape(s string, exact bool) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	marks := 0 // that sit on the same character
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case exact && r == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' '):
			b.WriteString(`\x20`)
		case exact && r == '\\':
			b.WriteString(`\\`)
		case strconv.IsPrint(r) && !unseen(r) && marks <= maxMarks:
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		i += n
	}
	return b.String()
}

// plain tells whether s is its own visible form at a glance, as nearly all text is.
func plain(s string) bool {
	if strings.HasPrefix(s, " ") || strings.HasSuffix(s, " ") || strings.Contains(s, "  ") {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// unseen tells whether r, though it counts as printable, leaves no mark of its own on the screen.
func unseen(r rune) bool {
	const brailleBlank = '\u2800'
	return r == brailleBlank || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// parseVisible reads the form that [visible] writes.
func parseVisible(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("%s is not valid UTF-8: write such bytes as \\xff", visible(s))
	}
	var b strings.Builder
	for rest := s; rest != ""; {
		r, wide, tail, err := strconv.UnquoteChar(rest, 0)
		switch {
		case err != nil:
			return "", fmt.Errorf("%s holds no escape that mutexctl writes, such as \\x1b, \\u202e or \\\\", visible(rest))
		case wide:
			b.WriteRune(r)
		default:
			b.WriteByte(byte(r))
		}
		rest = tail
	}
	return b.String(), nil
}

// lines are the lines of a longer text in visible form; the blanks and tabs that indent a line stay, as blanks.
func lines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		text := strings.TrimLeft(line, " \t")
		indent := strings.ReplaceAll(line[:len(line)-len(text)], "\t", "    ")
		out = append(out, indent+visible(text))
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
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0x1f300 && r < 0x1fb00, r > 0xff00 && r < 0xff61:
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
