package lockmetrics

import (
	"fmt"
	"hash/fnv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLabelBytes is the length of the longest label value.
const maxLabelBytes = 128

// label makes a label value of text from outside: invalid UTF-8 and characters that do not show (control characters, bidi
// marks, line separators) become U+FFFD, and it is cut to 128 bytes.
func label(s string) string {
	if plain(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(s[:min(len(s), 4*maxLabelBytes)], string(utf8.RuneError)))
	return cut(s, maxLabelBytes)
}

// nameLabel is the label of a lock's name. A name that had to be changed gets a mark computed from the whole name, so that
// names which differ only in what was lost stay apart, and so that every replica writes the same label.
func nameLabel(name string) string {
	if plain(name) {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	mark := fmt.Sprintf("~%08x", h.Sum32())
	return cut(label(name), maxLabelBytes-len(mark)) + mark
}

// plain tells whether s is a label value as it is.
func plain(s string) bool {
	if len(s) > maxLabelBytes || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if (r < ' ' || r >= utf8.RuneSelf || r == 0x7f) && !unicode.IsGraphic(r) {
			return false
		}
	}
	return true
}

// cut returns at most n bytes of the valid UTF-8 in s, whole characters only.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
