package lockview

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// keep cuts a key to what is kept of it. No part of a large value is referred to afterwards.
func keep(f metadata.Field) kept {
	k := kept{Field: f, size: len(f.Name) + len(f.Value)}
	switch {
	case f.Name == metadata.FieldBacktrace:
		k.Value = ""
		k.problems = complaints(f)
	case len(f.Value) <= maxKept/4:
	case f.Name == metadata.FieldMetadata:
		k.Value, k.problems = shorten(f.Value), slices.DeleteFunc(complaints(f), func(p metadata.Problem) bool {
			return p.Reason != metadata.ReasonTooLarge || p.Field == attributes
		})
	default:
		k.Value, k.problems = head(f.Value), complaints(f)
	}
	return k
}

// complaints are the problems of one key alone.
func complaints(f metadata.Field) []metadata.Problem {
	problems := metadata.Decode("lock", []metadata.Field{f}).Problems
	return slices.DeleteFunc(problems, func(p metadata.Problem) bool {
		return p.Reason == metadata.ReasonMissing || p.Field == "record"
	})
}

// shorten leaves out of a metadata document what is too large to be kept. What it returns decodes as document does, but
// for the problem that something is too large.
func shorten(document string) string {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(document), &all) != nil || all == nil {
		return "" // is no JSON object either
	}
	short := make(map[string]json.RawMessage, min(len(all), 2*maxFields))
	others := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !ofProtocol(name) {
			// one more than can be shown, even if as many as possible have keys of their own
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
		short[metadata.FieldBacktrace] = json.RawMessage("\"\xff\"") // still is not
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
	case len(raw) <= maxKept/4:
		return raw
	case raw[0] != '"': // a number too long to be kept as one
		text = string(raw)
	default:
		_ = json.Unmarshal(raw, &text) // it is valid
	}
	b, _ := json.Marshal(head(text))
	return b
}

// head is the beginning of s as a copy of its own.
func head(s string) string { return strings.Clone(s[:min(len(s), maxKept)]) }
