package lockrecord

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// object parses a JSON object. Of two members with the same name the last one counts, as in most parsers; bytes that
// are not UTF-8 are replaced, and numbers stay as written. ok is false for anything but one object.
func object(document string) (members map[string]any, ok bool) {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	if decoder.Decode(&members) != nil || members == nil {
		return nil, false
	}
	rest := document[decoder.InputOffset():]
	return members, strings.Trim(rest, " \t\r\n") == ""
}

// flat returns the value of a member as text; ok is false for an object or an array.
func flat(value any) (text string, ok bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// withoutBacktrace returns the metadata document with an empty backtrace, which decodes to the same record. Backtraces
// are most of what readers read and keep, and encoding/json takes four times as long with them. A backtrace that is a
// problem stays.
func withoutBacktrace(document string) string {
	const member = `"` + FieldBacktrace + `":`
	at := strings.Index(document, member)
	if at < 1 || document[at-1] == '\\' { // an escaped quote ends no string
		return document
	}
	before, after := document[:at+len(member)], strings.TrimLeft(document[at+len(member):], " ")
	text, plain := quoted(after)
	if text == "" || len(text)-len(`""`) > MaxBacktraceBytes || !utf8.ValidString(text) {
		return document
	}
	if !plain && !json.Valid([]byte(text)) {
		return document
	}
	return before + `""` + after[len(text):]
}

// quoted returns the JSON string at the beginning of s, with its quotes; empty if there is none. It is certainly valid
// if it is plain: without \u and without what JSON does not allow.
func quoted(s string) (text string, plain bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", false
	}
	plain = true
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[:i+1], plain
		case c == '\\' && i+1 < len(s):
			i++
			plain = plain && strings.IndexByte(`"\/bfnrt`, s[i]) >= 0
		case c < ' ':
			plain = false
		}
	}
	return "", false
}

// maxReadBytes is how many bytes of a key are read, except of backtraces and metadata documents: as many as the largest
// value that a key may have.
const maxReadBytes = MaxDocumentBytes

// Brief returns f without what [DecodeRecord] does not read, for readers that keep the fields of all locks: backtraces,
// and most of a value that is too large. The result does not refer to a large value.
func Brief(f metadata.Field) metadata.Field { return readPart(f, true) }

// readPart returns f with the part of its value that is read. It is the only place that cuts what a hostile client
// wrote.
func readPart(f metadata.Field, brief bool) metadata.Field {
	switch {
	case f.Size != 0: // done before
		return f
	case f.Name == FieldMetadata && len(f.Value) > MaxRecordBytes:
		return withValue(f, "")
	case f.Name == FieldMetadata && brief:
		return withValue(f, withoutBacktrace(f.Value))
	case f.Name == FieldMetadata:
		return f
	case f.Name == FieldBacktrace && brief && utf8.ValidString(cut(f.Value, MaxBacktraceBytes)):
		return withValue(f, "")
	case f.Name == FieldBacktrace && brief:
		return withValue(f, "\xff") // as little UTF-8 as the value
	case f.Name == FieldBacktrace, len(f.Value) <= maxReadBytes:
		return f
	}
	return withValue(f, strings.Clone(f.Value[:maxReadBytes]))
}

// withValue returns f with a part of its value.
func withValue(f metadata.Field, part string) metadata.Field {
	if len(part) != len(f.Value) {
		f.Size = len(f.Value)
	}
	f.Value = part
	return f
}

// sizeOf returns how many bytes the value of f has in etcd.
func sizeOf(f metadata.Field) int {
	if f.Size != 0 {
		return f.Size
	}
	return len(f.Value)
}
