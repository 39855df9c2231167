package lockview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxKeptBytes is how much of a value is kept: more than the limit of any text, so that it decodes to the same
	// text.
	maxKeptBytes = 2 * metadata.MaxTextBytes
	// maxFields is how many keys of a lock are kept: all fields of the protocol and as many attributes as a record may
	// have.
	maxFields = metadata.MaxAttributes + 32
	// attributes is the field named by the problem "too many attributes".
	attributes = "attributes"
)

// irregular is a lock that is not canonical: written key by key by a minimal client, repaired by hand, or hostile. Its
// keys are kept, so that a change of one key yields the same record as reading all of them again. Large values are cut
// to what the record shows of them.
type irregular struct {
	fields []keptField // sorted by name
	// surplus counts keys beyond maxFields. These attributes would not be shown anyway, but while they are not in
	// memory, the size and the choice of attributes are inexact until the next list.
	surplus int
	newest  int64 // highest mod revision of any key so far
}

// keptField is one key of an irregular lock.
type keptField struct {
	metadata.Field
	size     int                // of name and value in etcd, in bytes
	problems []metadata.Problem // of the whole value, before it was cut
}

func (o *irregular) find(name string) (int, bool) {
	return slices.BinarySearchFunc(o.fields, name,
		func(k keptField, name string) int { return strings.Compare(k.Name, name) })
}

func (o *irregular) set(k keptField) {
	o.newest = max(o.newest, k.ModRevision)
	i, ok := o.find(k.Name)
	switch {
	case ok:
		o.fields[i] = k
	case len(o.fields) >= maxFields && !metadata.IsReserved(k.Name):
		if k.CreateRevision == k.ModRevision { // otherwise it already counts
			o.surplus++
		}
	default:
		o.fields = slices.Insert(o.fields, i, k)
	}
}

func (o *irregular) remove(name string) {
	if i, ok := o.find(name); ok {
		o.fields = slices.Delete(o.fields, i, i+1)
	} else if o.surplus > 0 {
		o.surplus--
	}
}

func (o *irregular) size() int {
	n := 0
	for _, k := range o.fields {
		n += k.size
	}
	return n
}

func (o *irregular) raw() []metadata.Field {
	fields := make([]metadata.Field, len(o.fields))
	for i, k := range o.fields {
		fields[i] = k.Field
	}
	return fields
}

// record decodes the kept keys.
func (o *irregular) record(lock string) metadata.Record {
	rec := metadata.DecodeRecord(lock, o.raw())
	problems := slices.DeleteFunc(rec.Problems, func(p metadata.Problem) bool {
		return p.Reason == metadata.ReasonTooLarge && p.Field != attributes
	})
	for _, k := range o.fields {
		if rec.Leftover(k.Field) {
			continue
		}
		for _, p := range k.problems {
			if k.Name == metadata.FieldMetadata && p.Field != k.Name {
				if i, own := o.find(p.Field); own && !rec.Leftover(o.fields[i].Field) {
					continue
				}
			}
			if _, shown := rec.Attributes[p.Field]; !shown && !metadata.IsReserved(p.Field) {
				continue // of an attribute beyond MaxAttributes, which the record leaves out
			}
			if !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
		}
	}
	if size := o.size(); size > metadata.MaxRecordBytes || o.surplus > 0 {
		problems = append(problems, tooLarge(size))
	}
	rec.Problems = problems
	return rec
}

func tooLarge(size int) metadata.Problem {
	return metadata.Problem{
		Field: "record", Reason: metadata.ReasonTooLarge,
		Text: fmt.Sprintf("%d bytes, at most %d are allowed", size, metadata.MaxRecordBytes),
	}
}

// truncate cuts a field to the part that is kept. The result does not refer to a large value.
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

// shorten drops what is too large to keep from a metadata document. The result decodes to the same as document, except
// for the problem that something is too large.
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
	b, _ := json.Marshal(short) // it cannot fail for what decoding yields
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
