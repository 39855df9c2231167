// Package text prepares text from outside for display. Anyone with write access to etcd chooses names, owners and
// purposes, so this is security code. There is one copy of it: the same text looks the same in terminals, logs and
// errors.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks one character may have: a pile of them would cover the lines above.
const maxMarks = 4

// Span is a piece of text that can be shown unchanged.
type Span struct {
	Text   string
	Escape bool // Text is the escape of something that cannot be shown unchanged
}

// Visible writes s so that every byte is visible and none can control a terminal or change the writing direction.
// Control characters, direction marks, invisible characters and bytes that are not UTF-8 become escapes as in Go: \x1b,
// \u202e, \xff. So does a blank that begins or ends the text or follows another, so that a name cannot pretend to be
// two columns. A backslash is doubled, so that [Parse] can read the result back.
func Visible(s string) string { return join(escape(s, true)) }

// Prose is [Visible] for a sentence that quotes text from outside, some of it already escaped: spaces and backslashes
// stay.
func Prose(s string) string { return join(escape(s, false)) }

// Spans returns [Visible] in pieces, for a page that marks escapes.
func Spans(s string) []Span { return escape(s, true) }

func join(spans []Span) string {
	if len(spans) == 1 {
		return spans[0].Text
	}
	var b strings.Builder
	for _, span := range spans {
		b.WriteString(span.Text)
	}
	return b.String()
}

func escape(s string, exact bool) []Span {
	if isVisible(s) {
		return []Span{{Text: s}}
	}
	var out builder
	marks := 0 // on the current character
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && size == 1:
			out.add(fmt.Sprintf(`\x%02x`, s[i]), true)
		case exact && ambiguousBlank(s, i):
			out.add(`\x20`, true)
		case exact && r == '\\':
			out.add(`\\`, false)
		case strconv.IsPrint(r) && !invisible(r) && marks <= maxMarks:
			out.add(s[i:i+size], false)
		default:
			out.add(strings.Trim(strconv.QuoteRuneToASCII(r), "'"), true)
		}
		i += size
	}
	return out.spans()
}

// ambiguousBlank reports whether the blank of s at i would be invisible or look like the gap between two columns.
func ambiguousBlank(s string, i int) bool {
	return s[i] == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' ')
}

// isVisible reports whether s is certainly its own visible form, like nearly all text.
func isVisible(s string) bool {
	if strings.HasPrefix(s, " ") || strings.HasSuffix(s, " ") || strings.Contains(s, "  ") {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' || c == '\\' })
}

// invisible reports whether r leaves no mark on the screen although it counts as printable.
func invisible(r rune) bool {
	const brailleBlank = '\u2800'
	return r == brailleBlank || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// NonASCII reports whether s contains non-ASCII characters, which can look like others, such as a Cyrillic а.
func NonASCII(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// Parse reads the form that [Visible] writes.
func Parse(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", fmt.Errorf(`%s is not valid UTF-8: write such bytes as \xff`, Visible(s))
	}
	var b strings.Builder
	for rest := s; rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
		switch {
		case err != nil:
			return "", fmt.Errorf(`%s does not begin with an escape such as \x1b, \u202e or \\`, Visible(rest))
		case multibyte:
			b.WriteRune(r)
		default:
			b.WriteByte(byte(r))
		}
		rest = tail
	}
	return b.String(), nil
}

// builder collects spans and merges adjacent ones of the same kind.
type builder struct {
	done   []Span
	text   strings.Builder
	escape bool
}

func (b *builder) add(text string, escape bool) {
	if escape != b.escape {
		b.flush()
	}
	b.escape = escape
	b.text.WriteString(text)
}

func (b *builder) flush() {
	if b.text.Len() > 0 {
		b.done = append(b.done, Span{b.text.String(), b.escape})
		b.text.Reset()
	}
}

func (b *builder) spans() []Span {
	b.flush()
	return b.done
}

// Clip shortens s to maxBytes plus an ellipsis. It never cuts a character in two.
func Clip(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return Cut(s, maxBytes) + "…"
}

// Cut shortens s to maxBytes. It never cuts a character in two.
func Cut(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	for n := maxBytes; n > 0 && n > maxBytes-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:maxBytes] // not UTF-8 there, so no character to keep whole
}
