package text

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLabelBytes is the length of the longest label.
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

// Attributes are the attributes of a record that become labels of metrics, in the order of the labels. The zero value
// has none.
type Attributes struct{ labels, names []string }

// NewAttributes returns those of a map from label to attribute.
func NewAttributes(byLabel map[string]string) (a Attributes) {
	a.labels = slices.Sorted(maps.Keys(byLabel))
	for _, label := range a.labels {
		a.names = append(a.names, byLabel[label])
	}
	return a
}

// Labels returns the names of the labels.
func (a Attributes) Labels() []string { return a.labels }

// Values returns the value of each label. That of an attribute which the record does not have is empty, which
// Prometheus takes for no label.
func (a Attributes) Values(attributes map[string]any) []string {
	values := make([]string, len(a.names))
	for i, name := range a.names {
		if value, has := attributes[name]; has {
			values[i] = Label(fmt.Sprint(value))
		}
	}
	return values
}

// NameParameter is how the name of a lock travels in the query of a link to the dashboard, before it is escaped. It is
// never part of a path, where proxies decode and merge slashes. A name that is not UTF-8 travels as base64url.
func NameParameter(name string) (key, value string) {
	if utf8.ValidString(name) {
		return "name", name
	}
	return "name_b64", base64.RawURLEncoding.EncodeToString([]byte(name))
}
