package dashboard

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a piece of text from outside as it may be shown.
type span struct {
	Text   string
	Escape bool // Text stands for something that can not be shown as it is
}

// maxMarks is how many combining marks may sit on one character before the rest is spelled out.
const maxMarks = 4

// visible takes text from outside apart for showing. Nothing is dropped: control and format characters, bidi marks,
// characters that look like nothing or like a blank, invalid UTF-8, and blanks at either end become escapes. A text
// that has escapes also has its backslashes doubled, so that the result can be read back without doubt.
func visible(s string) []span {
	if plainASCII(s) {
		return []span{{Text: s}}
	}
	var (
		out      spans
		from     int // of what can be shown as it is and was not yet
		marks    int // combining marks on the character before
		lead     = len(s) - len(strings.TrimLeft(s, " "))
		trailing = len(strings.TrimRight(s, " "))
	)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		blank := r == ' ' && (i < lead || i >= trailing)
		if blank || marks > maxMarks || !shown(r, size) {
			out.add(s[from:i], false)
			out.add(escape(r, s[i:i+size]), true)
			from = i + size
		}
		i += size
	}
	out.add(s[from:], false)
	return out.end()
}

// spans collects the pieces of a text.
type spans struct {
	done    []span
	text    strings.Builder // of the piece at work
	escape  bool            // what it is
	escapes bool            // there was one
}

func (p *spans) add(text string, escape bool) {
	if text == "" {
		return
	}
	if p.escape != escape {
		p.flush()
	}
	p.escape, p.escapes = escape, p.escapes || escape
	p.text.WriteString(text)
}

func (p *spans) flush() {
	if p.text.Len() > 0 {
		p.done = append(p.done, span{p.text.String(), p.escape})
		p.text.Reset()
	}
}

func (p *spans) end() []span {
	p.flush()
	for i := range p.done {
		if p.escapes && !p.done[i].Escape {
			p.done[i].Text = strings.ReplaceAll(p.done[i].Text, `\`, `\\`)
		}
	}
	return p.done
}

// plain is visible in one string, for attributes and sentences.
func plain(s string) string {
	if plainASCII(s) {
		return s
	}
	var b strings.Builder
	for _, v := range visible(s) {
		b.WriteString(v.Text)
	}
	return b.String()
}

// plainASCII tells whether s can be shown as it is; nearly all text can.
func plainASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// nonASCII tells whether s holds characters that can pass for others; the page marks such names.
func nonASCII(s string) bool {
	if len(s) == maxNameShown+len(cutMark) {
		s = strings.TrimSuffix(s, cutMark) // which clip put there
	}
	return strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// shown tells whether a character can be shown as it is.
func shown(r rune, size int) bool {
	switch {
	case r == utf8.RuneError && size <= 1: // a byte that is not UTF-8
		return false
	case r == ' ':
		return true
	case blankLooking(r):
		return false
	}
	return unicode.IsPrint(r) // neither control, format, private, surrogate nor any other blank
}

// blankLooking are letters and marks that show nothing.
func blankLooking(r rune) bool {
	switch r {
	case 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0:
		return true
	}
	return r >= 0xFE00 && r <= 0xFE0F || r >= 0xE0100 && r <= 0xE01EF // variation selectors
}

func escape(r rune, raw string) string {
	switch {
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Sprintf(`\x%02x`, raw[0])
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// middle cuts a text in two so that the page can shorten it in the middle: what differs is often at the end.
func middle(s string) (head, tail string) {
	const keep, most = 14, 30
	if len(s) <= most {
		return s, ""
	}
	i := len(s) - keep
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return s[:i], s[i:]
}

// cutMark is what stands for the rest of a text.
const cutMark = "…"

// clip shortens a text to at most n bytes and does not cut a character in two.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + cutMark
}

// boxText is text for an input of one line: as it was typed, without what no keyboard types there.
func boxText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}
