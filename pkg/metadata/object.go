package metadata

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

type member struct {
	name string
	kind kind
	text string // a string without its quotes, anything else as written
}

type kind byte

const (
	kindText kind = iota
	kindNumber
	kindBoolean
	kindNull
	kindNested // an object or an array
)

// object parses a JSON object, without looking into nested values. The members are sorted by name; of two with the same
// name the last one counts, as in most parsers. Bytes that are not UTF-8 are replaced. ok is false for anything but one
// object.
//
// It exists because readers decode every lock when they start, and encoding/json takes three times as long. It handles
// only the plain cases and leaves the rest (escapes, nesting, bad UTF-8) to encoding/json; a fuzz test compares the
// two. Nothing it returns shares memory with document, so a short text does not keep a long document in memory.
//
// With brief, the text of a backtrace within its limit is left empty.
func object(document string, brief bool) (members []member, ok bool) {
	s := scanner{rest: document, plain: utf8.ValidString(document)}
	if !s.skip('{') {
		return nil, false
	}
	members = make([]member, 0, 12)
	for more := !s.skip('}'); more; {
		name, ok := s.text()
		if !ok || !s.skip(':') {
			return nil, false
		}
		m := member{name: name}
		if unread := brief && name == FieldBacktrace && s.pass(); !unread {
			if m.kind, m.text, ok = s.value(); !ok {
				return nil, false
			}
		}
		members = append(members, m)
		if more = s.skip(','); !more && !s.skip('}') {
			return nil, false
		}
	}
	if s.space(); s.rest != "" {
		return nil, false
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return lastOfName(members), true
}

func lastOfName(members []member) []member {
	kept := members[:0]
	for i, m := range members {
		if i+1 == len(members) || members[i+1].name != m.name {
			kept = append(kept, m)
		}
	}
	return kept
}

// scanner reads JSON from the front of rest.
type scanner struct {
	rest  string
	plain bool // valid UTF-8, so a string without escapes can be used as it is
}

func (s *scanner) space() {
	if s.rest != "" && s.rest[0] <= ' ' { // most documents have none, and every token gets here
		s.rest = strings.TrimLeft(s.rest, " \t\r\n")
	}
}

// skip consumes c and the white space before it, if c comes next.
func (s *scanner) skip(c byte) bool {
	s.space()
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) value() (kind, string, bool) {
	s.space()
	if s.rest == "" {
		return 0, "", false
	}
	switch c := s.rest[0]; c {
	case '"':
		text, ok := s.text()
		return kindText, text, ok
	case '{', '[':
		text, ok := s.nested()
		return kindNested, text, ok
	case 't', 'f':
		text, ok := s.token()
		return kindBoolean, text, ok
	case 'n':
		text, ok := s.token()
		return kindNull, text, ok
	}
	text, ok := s.token()
	return kindNumber, text, ok
}

// token reads a number or a literal, up to its delimiter.
func (s *scanner) token() (string, bool) {
	end := strings.IndexAny(s.rest, ",}] \t\r\n")
	if end < 0 {
		return "", false
	}
	token := strings.Clone(s.rest[:end])
	s.rest = s.rest[end:]
	return token, json.Valid([]byte(token))
}

func (s *scanner) nested() (string, bool) {
	var raw json.RawMessage
	decoder := json.NewDecoder(strings.NewReader(s.rest))
	if decoder.Decode(&raw) != nil {
		return "", false
	}
	s.rest = s.rest[decoder.InputOffset():]
	return string(raw), true
}

func (s *scanner) text() (string, bool) {
	text, escaped, ok := s.raw()
	if !ok {
		return "", false
	}
	if s.plain && !escaped {
		return strings.Clone(text), true
	}
	return s.unescape(text)
}

// raw reads a quoted string without unescaping it.
func (s *scanner) raw() (text string, escaped, ok bool) {
	if !s.skip('"') {
		return "", false, false
	}
	end := strings.IndexByte(s.rest, '"')
	for from := 0; end >= 0; {
		escape := strings.IndexByte(s.rest[from:end], '\\')
		if escape < 0 {
			text, s.rest = s.rest[:end], s.rest[end+1:]
			return text, escaped, !hasControl(text)
		}
		escaped = true
		if from += escape + 2; from > end { // the quote was escaped
			if end = strings.IndexByte(s.rest[from:], '"'); end >= 0 {
				end += from
			}
		}
	}
	return "", false, false
}

// hasControl reports whether a byte is a control character, which a JSON string must not contain. It checks eight bytes
// at a time, because backtraces are most of what is read.
func hasControl(text string) bool {
	const each = 0x0101010101010101
	for ; len(text) >= 8; text = text[8:] {
		w := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		if (w-each*' ')&^w&(each*0x80) != 0 { // the highest bit of a byte is set by the borrow alone
			return true
		}
	}
	for i := range len(text) {
		if text[i] < ' ' {
			return true
		}
	}
	return false
}

// pass skips the next string if it needs no check: it is valid and, even in its escaped form, within the limit.
func (s *scanner) pass() bool {
	ahead := *s
	text, _, ok := ahead.raw()
	if !ok || !s.plain || len(text) > MaxBacktraceBytes {
		return false
	}
	for rest := text; ; {
		i := strings.IndexByte(rest, '\\')
		if i < 0 {
			*s = ahead
			return true
		}
		if strings.IndexByte(`nt"\/rbf`, rest[i+1]) < 0 {
			return false
		}
		rest = rest[i+2:]
	}
}

// unescape handles the escapes that backtraces are full of and leaves others to encoding/json.
func (s *scanner) unescape(text string) (string, bool) {
	var b strings.Builder
	b.Grow(len(text))
	for from := 0; s.plain; {
		i := strings.IndexByte(text[from:], '\\')
		if i < 0 {
			b.WriteString(text[from:])
			return b.String(), true
		}
		b.WriteString(text[from : from+i])
		switch text[from+i+1] { // exists: raw has scanned over it
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '"', '\\', '/':
			b.WriteByte(text[from+i+1])
		default:
			return unquote(text)
		}
		from += i + 2
	}
	return unquote(text)
}

func unquote(text string) (string, bool) {
	quoted := bytes.Join([][]byte{nil, []byte(text), nil}, []byte{'"'})
	var unquoted string
	err := json.Unmarshal(quoted, &unquoted)
	return unquoted, err == nil
}
