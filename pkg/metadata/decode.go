package metadata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Decode reads the keys of one lock, in any order. It never fails: what can not be read is listed in Problems, and the rest of
// the record is as good as it would be without it. Fields that are not of this protocol are attributes; foreign are the keys in
// the record's range that fit no layout.
func Decode(lock string, fields []Field, foreign ...string) Document {
	d := decoder{doc: Document{Record: Record{Name: lock}, Fields: slices.Clone(fields)}}
	slices.SortFunc(d.doc.Fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	if err := CheckName(lock); err != nil {
		d.problem("name", ReasonBadName, err.Error())
	}
	for _, f := range d.doc.Fields {
		if f.Name == FieldMetadata {
			d.members(f.Value)
		}
	}
	size := 0
	for _, f := range d.doc.Fields {
		size += len(f.Name) + len(f.Value)
		d.doc.Revision = max(d.doc.Revision, f.ModRevision)
		d.key(f)
	}
	d.missing()
	if size > MaxRecordBytes {
		d.problem("record", ReasonTooLarge, fmt.Sprintf("%d bytes, at most %d are allowed", size, MaxRecordBytes))
	}
	for _, key := range foreign {
		d.problem(cut(key, MaxTextBytes), ReasonUnknownLayout, "fits no layout and is left alone")
	}
	return d.doc
}

type decoder struct{ doc Document }

func (d *decoder) problem(field string, reason Reason, text string) {
	d.doc.Problems = append(d.doc.Problems, Problem{Field: field, Reason: reason, Text: text})
}

// key takes one key of the record; a key of its own wins over the member of that name, which was read before.
func (d *decoder) key(f Field) {
	switch f.Name {
	case FieldMetadata:
	case FieldUUID:
		d.doc.UUID, d.doc.Token = d.text(f.Name, f.Value), f.CreateRevision
		if err := checkUUID(f.Value); err != nil {
			d.problem(f.Name, ReasonBadValue, err.Error())
		}
	case FieldAlertAt:
		d.doc.AlertAt = d.time(f.Name, f.Value)
	case FieldAutoUnlockAt:
		d.doc.AutoUnlockAt, d.doc.DeadlineRevision = d.time(f.Name, f.Value), f.ModRevision
	case FieldAlive:
		at, progress, _ := strings.Cut(f.Value, " ")
		d.doc.Alive = &Alive{At: d.time(f.Name, at), Progress: d.text(f.Name, progress)}
	default:
		d.member(f.Name, f.Value)
	}
}

// members reads the metadata document.
func (d *decoder) members(value string) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &members); err != nil || members == nil {
		d.problem(FieldMetadata, ReasonBadValue, "not a JSON object")
		return
	}
	for _, name := range sortedKeys(members) {
		if d.hasKey(name) {
			continue
		}
		raw := members[name]
		var text string
		switch {
		case json.Unmarshal(raw, &text) == nil && raw[0] == '"':
			d.member(name, text)
		case known(name):
			d.member(name, string(raw))
		default:
			d.attribute(name, scalar(raw))
		}
	}
}

func (d *decoder) hasKey(name string) bool {
	return slices.ContainsFunc(d.doc.Fields, func(f Field) bool { return f.Name == name })
}

// member takes a value that people read, from a key of its own or from the document.
func (d *decoder) member(name, value string) {
	switch name {
	case FieldOwner:
		d.doc.Owner = d.text(name, value)
	case FieldHostname:
		d.doc.Hostname = d.text(name, value)
	case FieldPurpose:
		d.doc.Purpose = d.text(name, value)
	case FieldClient:
		d.doc.Client = d.text(name, value)
	case FieldLockedAt:
		d.doc.LockedAt = d.time(name, value)
	case FieldPID:
		d.doc.PID = d.number(name, value)
	case FieldBacktrace:
		d.doc.Backtrace = d.limited(name, value, MaxBacktraceBytes)
	default:
		d.attribute(name, value)
	}
}

func known(name string) bool {
	switch name {
	case FieldOwner, FieldHostname, FieldPurpose, FieldClient, FieldLockedAt, FieldPID, FieldBacktrace:
		return true
	}
	return false
}

// attribute keeps what this protocol does not know; nil stands for a value that is neither text, number nor boolean.
func (d *decoder) attribute(name string, value any) {
	if len(d.doc.Attributes) >= MaxAttributes {
		if len(d.doc.Attributes) == MaxAttributes && !slices.ContainsFunc(d.doc.Problems, func(p Problem) bool { return p.Field == "attributes" }) {
			d.problem("attributes", ReasonTooLarge, fmt.Sprintf("only the first %d are kept", MaxAttributes))
		}
		return
	}
	name = cut(name, MaxTextBytes)
	switch v := value.(type) {
	case string:
		value = d.text(name, v)
	case nil:
		d.problem(name, ReasonBadValue, "neither text, number nor boolean")
		return
	}
	if d.doc.Attributes == nil {
		d.doc.Attributes = map[string]any{}
	}
	d.doc.Attributes[name] = value
}

// scalar is the number or boolean that raw is, or nil.
func scalar(raw json.RawMessage) any {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	switch value.(type) {
	case json.Number, bool:
		return value
	}
	return nil
}

func (d *decoder) text(name, value string) string { return d.limited(name, value, MaxTextBytes) }

func (d *decoder) limited(name, value string, most int) string {
	if !utf8.ValidString(value) {
		d.problem(name, ReasonBadValue, "not valid UTF-8")
	}
	if len(value) > most {
		d.problem(name, ReasonTooLarge, fmt.Sprintf("%d bytes, only the first %d are shown", len(value), most))
		value = strings.Clone(cut(value, most))
	}
	return value
}

func (d *decoder) time(name, value string) time.Time {
	t, err := ParseTime(value)
	if err != nil {
		d.problem(name, ReasonBadTime, err.Error())
	}
	return t
}

func (d *decoder) number(name, value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		d.problem(name, ReasonBadValue, fmt.Sprintf("%q is not a number", clip(value)))
		return 0
	}
	return n
}

func (d *decoder) missing() {
	for _, name := range []string{FieldUUID, FieldAlertAt, FieldAutoUnlockAt} {
		if !d.hasKey(name) {
			d.problem(name, ReasonMissing, "missing")
		}
	}
}

// cut returns at most n bytes of s and does not cut a character in two.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := 0; i < utf8.UTFMax && n > 0 && !utf8.RuneStart(s[n]); i++ {
		n--
	}
	return s[:n]
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
