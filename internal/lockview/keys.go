package lockview

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A change of one key must yield the same record as reading all keys of the lock. Keeping all keys for that would
// triple the memory of a lock, so they are kept only if the record does not determine them.
//
// A lock is canonical if its keys are exactly uuid, alert_at, auto_unlock_at, metadata and perhaps alive, written as
// the protocol's transactions write them: uuid and metadata at the token's revision, the others together. It is also
// canonical if it is plain: the members of the document are separate keys, without a document. The record of a
// canonical lock determines its keys, so only their names are kept. All other locks are irregular.

// change is an event on one key of a lock.
type change struct {
	field   string
	foreign bool // a foreign key in the lock's range
	event   *protocol.Event
}

// written returns the key after the event.
func (c change) written() metadata.Field {
	return metadata.Field{Name: c.field, Value: string(c.event.Value), CreateRevision: c.event.CreateRevision,
		ModRevision: c.event.ModRevision, Version: c.event.Version}
}

// maxCanonical leaves room for an alive key, so that a canonical lock stays below the size limit of a record.
const maxCanonical = metadata.MaxRecordBytes - 2*metadata.MaxTextBytes

// keysOf returns the names of the keys of a lock that decode to rec, if it is canonical.
func keysOf(rec *metadata.Record, fields []metadata.Field, size int, in *interner) (k *keyNames, canonical bool) {
	if rec.Problems != nil || size > maxCanonical {
		return nil, false
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	var members map[string]any
	if !slices.Contains(names, metadata.FieldMetadata) {
		members = membersOf(rec)
	}
	opaque := 0
	for _, f := range fields {
		if f.ModRevision != revisionOf(rec, f.Name) { // the token's, unless the uuid was overwritten
			return nil, false
		}
		if isOpaque(f.Name) {
			opaque++
			continue
		}
		value, ours := valueOf(rec, f.Name)
		if !ours {
			value, ours = members[f.Name].(string)
		}
		if !ours || value != f.Value {
			return nil, false
		}
	}
	if opaque > 1 {
		return nil, false
	}
	return in.keys(names), true
}

// isOpaque reports whether the record does not determine the exact value of a key. Its size follows from that of the
// lock, so a canonical lock has at most one such key.
func isOpaque(name string) bool {
	return name == metadata.FieldMetadata || name == metadata.FieldBacktrace || name == metadata.FieldClient
}

// revisionOf returns the revision at which a key of a canonical lock was written.
func revisionOf(r *metadata.Record, name string) int64 {
	switch name {
	case metadata.FieldAlertAt, metadata.FieldAutoUnlockAt, metadata.FieldAlive:
		return r.DeadlineRevision
	}
	return r.Token
}

// valueOf returns what the protocol's transactions write into a key that they act on.
func valueOf(r *metadata.Record, name string) (value string, ok bool) {
	switch name {
	case metadata.FieldUUID:
		return r.UUID, true
	case metadata.FieldAlertAt:
		return metadata.FormatTime(r.AlertAt), true
	case metadata.FieldAutoUnlockAt:
		return metadata.FormatTime(r.AutoUnlockAt), true
	case metadata.FieldAlive:
		if r.Alive != nil {
			return metadata.FormatAlive(r.Alive.At, r.Alive.Progress), true
		}
	}
	return "", false
}

// membersOf returns the members of the metadata document that the record has.
func membersOf(r *metadata.Record) map[string]any {
	members := make(map[string]any, len(r.Attributes)+8)
	maps.Copy(members, r.Attributes)
	for name, value := range r.Members() {
		members[name] = value
	}
	return members
}

// expand returns the keys of a canonical lock as if they had been read. They decode to the same record, although the
// document may be shorter.
func expand(h *held) *irregular {
	r := &h.Record
	members := membersOf(r)
	o := &irregular{}
	var opaque string // the key that accounts for the rest of the lock's size
	for _, name := range h.keys.names {
		value, ours := valueOf(r, name)
		switch {
		case ours:
		case isOpaque(name):
			opaque = name
			continue
		default:
			value, _ = members[name].(string) // a string, or the lock would not be canonical
		}
		o.set(keptField{Field: fieldOf(r, name, value), size: len(name) + len(value)})
	}
	if opaque == "" {
		return o
	}
	var document []byte
	if opaque == metadata.FieldMetadata {
		document, _ = json.Marshal(members) // it cannot fail for what decoding yields
	}
	o.set(keptField{Field: fieldOf(r, opaque, string(document)), size: int(h.size) - o.size()})
	return o
}

// fieldOf returns a key of a canonical lock.
func fieldOf(r *metadata.Record, name, value string) metadata.Field {
	f := metadata.Field{Name: name, Value: value, ModRevision: revisionOf(r, name)}
	switch name {
	case metadata.FieldUUID:
		f.CreateRevision = r.Token
	case metadata.FieldAutoUnlockAt:
		f.Version = r.Extensions + 1
	}
	return f
}

// madeOf reports whether the keys of a list are those of this canonical lock. It compares revisions: a key never has
// two values at one revision.
func (h *held) madeOf(fields []metadata.Field) bool {
	return slices.EqualFunc(h.keys.names, fields, func(name string, f metadata.Field) bool {
		return f.Name == name && f.ModRevision == revisionOf(&h.Record, name)
	})
}

// extended returns a canonical lock after the changes of one revision; ok reports whether they are what the protocol's
// alive transaction writes. Most writes are such, and decoding all keys of the lock would take four times as long.
func extended(before *held, changes []change, in *interner) (after *held, ok bool) {
	fields := make([]metadata.Field, 0, len(changes))
	for _, c := range changes {
		if c.foreign || c.event.Deleted {
			return nil, false
		}
		fields = append(fields, c.written())
	}
	rec := before.Record // a copy
	now := metadata.DecodeRecord(rec.Name, fields)
	writes := 2
	if now.Alive != nil {
		writes++
	}
	if len(fields) != writes || now.Token != 0 || len(now.Problems) != 1 { // the missing uuid is one
		return nil, false
	}
	size := int(before.size)
	keys := before.keys
	switch {
	case now.Alive == nil && rec.Alive != nil:
		return nil, false
	case now.Alive != nil && rec.Alive == nil:
		size += len(metadata.FieldAlive)
		keys = in.keys(append(slices.Clip(keys.names), metadata.FieldAlive))
	}
	for _, f := range fields {
		old, _ := valueOf(&rec, f.Name)
		size += len(f.Value) - len(old)
	}
	rec.AlertAt = now.AlertAt
	rec.AutoUnlockAt = now.AutoUnlockAt
	rec.Alive = now.Alive
	rec.DeadlineRevision = now.DeadlineRevision
	rec.Extensions = now.Extensions
	rec.Revision = now.Revision
	for _, f := range fields {
		if value, _ := valueOf(&rec, f.Name); value != f.Value {
			return nil, false
		}
	}
	return &held{Record: rec, size: sizeOf(size), keys: keys}, size <= maxCanonical
}
