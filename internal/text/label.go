package text

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxLabelBytes = 128

// Label turns text from outside into the value of a metric's label: invalid UTF-8 and invisible characters (control
// characters, bidi marks, line separators) become U+FFFD, and it is cut to 128 bytes.
func Label(s string) string {
	if isLabel(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(s[:min(len(s), 4*maxLabelBytes)], string(utf8.RuneError)))
	return Cut(s, maxLabelBytes)
}

// NameLabel returns the label for a lock's name. If the name had to be changed, a hash of it is added, so that
// different names have different labels, which are the same in all programs.
func NameLabel(name string) string {
	if isLabel(name) {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	mark := fmt.Sprintf("~%08x", h.Sum32())
	return Cut(Label(name), maxLabelBytes-len(mark)) + mark
}

// isLabel reports whether s needs no change.
func isLabel(s string) bool {
	return len(s) <= maxLabelBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < ' ' || r >= utf8.RuneSelf || r == 0x7f) && !unicode.IsGraphic(r)
	})
}

// AttributeLabels returns the labels that these attributes of a record become. One is empty if the record does not have
// the attribute, which to Prometheus is the same as no label.
func AttributeLabels(names []string, attributes map[string]any) []string {
	values := make([]string, len(names))
	for i, name := range names {
		if value, has := attributes[name]; has {
			values[i] = Label(fmt.Sprint(value))
		}
	}
	return values
}

// NameParameter returns the query parameter for a lock's name in a link to the dashboard, not yet escaped. Names are
// never part of a path, where proxies decode and merge slashes. A name that is not UTF-8 is sent as base64url.
func NameParameter(name string) (key, value string) {
	if utf8.ValidString(name) {
		return "name", name
	}
	return "name_b64", base64.RawURLEncoding.EncodeToString([]byte(name))
}
