package lockview

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// truncate cuts a field to what is kept of it. The result does not refer to a large value.
func truncate(f metadata.Field) keptField {
	k := keptField{Field: f, size: len(f.Name) + len(f.Value)}
	switch {
	case f.Name == metadata.FieldBacktrace:
		k.Value = ""
		k.problems = problemsOf(f)
	case len(f.Value) <= maxKeptBytes/4:
	case f.Name == metadata.FieldMetadata:
		k.Value, k.problems = shorten(f.Value), slices.DeleteFunc(problemsOf(f), func(p metadata.Problem) bool {
			return p.Reason != metadata.ReasonTooLarge || p.Field == attributes
		})
	default:
		k.Value, k.problems = head(f.Value), problemsOf(f)
	}
	return k
}

// problemsOf returns the problems of one key by itself.
func problemsOf(f metadata.Field) []metadata.Problem {
	problems := metadata.Decode("lock", []metadata.Field{f}).Problems
	return slices.DeleteFunc(problems, func(p metadata.Problem) bool {
		return p.Reason == metadata.ReasonMissing || p.Field == "record"
	})
}

// shorten leaves out of a metadata document what is too large to keep. The result decodes as document does, except for
// the problem that something is too large.
func shorten(document string) string {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(document), &all) != nil || all == nil {
		return "" // not a JSON object either
	}
	short := make(map[string]json.RawMessage, min(len(all), 2*maxFields))
	others := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !metadata.IsReserved(name) {
			// One more than can be shown, even if as many as possible have keys of their own.
			if others++; others > maxFields {
				continue
			}
		}
		short[head(name)] = shortMember(all[name])
	}
	if short[metadata.FieldBacktrace] != nil {
		short[metadata.FieldBacktrace] = json.RawMessage(`""`)
	}
	if !utf8.ValidString(document) {
		short[metadata.FieldBacktrace] = json.RawMessage("\"\xff\"") // stays invalid UTF-8
	}
	b, err := json.Marshal(short)
	if err != nil {
		return ""
	}
	return string(b)
}

func shortMember(raw json.RawMessage) json.RawMessage {
	var text string
	switch {
	case raw[0] == '{', raw[0] == '[':
		return json.RawMessage(`{}`)
	case len(raw) <= maxKeptBytes/4:
		return raw
	case raw[0] != '"': // a number too long to keep as one
		text = string(raw)
	default:
		_ = json.Unmarshal(raw, &text) // it is valid
	}
	b, _ := json.Marshal(head(text))
	return b
}

// head returns a copy of the beginning of s.
func head(s string) string { return strings.Clone(s[:min(len(s), maxKeptBytes)]) }
