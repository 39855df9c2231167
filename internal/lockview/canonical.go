package lockview

import (
	"encoding/json"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A lock is canonical if its keys are exactly uuid, alert_at, auto_unlock_at, metadata and perhaps alive, written as
// the protocol's transactions write them: uuid and metadata at the token's revision, the others together. It is also
// canonical if it is plain: the members of the document are keys of their own, without a document. The record of a
// canonical lock says all there is to know about its keys, so nothing else is kept but which of them there are. All
// other locks are irregular.

// maxCanonical leaves room for an alive key, so that a canonical lock stays below the size limit of a record.
const maxCanonical = metadata.MaxRecordBytes - 2*metadata.MaxTextBytes

// isCanonical reports whether the lock with these fields, which decode to rec, is canonical, and which keys it has
// instead of a document.
func isCanonical(rec *metadata.Record, fields []metadata.Field, size int) (own ownKeys, ok bool) {
	if rec.Problems != nil || size > maxCanonical {
		return 0, false
	}
	document := false
	for _, f := range fields {
		key, ok := canonicalField(rec, f)
		if !ok {
			return 0, false
		}
		own |= key
		document = document || f.Name == metadata.FieldMetadata
	}
	if document { // then all members have to be in it
		return 0, len(fields) == ownKeys(0).count(rec.Attributes, rec.Alive)
	}
	own |= noDocument
	return own, own&opaque != opaque && len(fields) == own.count(rec.Attributes, rec.Alive)
}

func canonicalField(rec *metadata.Record, f metadata.Field) (own ownKeys, ok bool) {
	switch f.Name {
	case metadata.FieldUUID, metadata.FieldMetadata, metadata.FieldAlertAt, metadata.FieldAutoUnlockAt,
		metadata.FieldAlive:
		return 0, isCanonicalField(rec, f)
	}
	own, ok = ownKeyOf(rec, f)
	return own, ok && f.ModRevision == rec.Token
}

func isCanonicalField(rec *metadata.Record, f metadata.Field) bool {
	switch f.Name {
	case metadata.FieldUUID:
		return f.ModRevision == f.CreateRevision
	case metadata.FieldMetadata:
		return f.ModRevision == rec.Token
	case metadata.FieldAlertAt, metadata.FieldAutoUnlockAt:
		return f.ModRevision == rec.DeadlineRevision && canonicalTime(f.Value)
	case metadata.FieldAlive:
		return f.ModRevision == rec.DeadlineRevision && canonicalAlive(f.Value, rec.Alive)
	}
	return false
}

// canonicalTime reports whether a valid time is written as FormatTime writes it: without trailing zeros.
func canonicalTime(s string) bool { return !strings.Contains(s, ".") || s[len(s)-1] != '0' }

func canonicalAlive(s string, a *metadata.Alive) bool {
	at, progress, blank := strings.Cut(s, " ")
	return canonicalTime(at) && progress == a.Progress && blank == (a.Progress != "")
}

// extended returns the canonical lock after the changes of one revision; ok reports whether they are what the
// protocol's alive transaction writes.
func (s *snapshot) extended(it item, changes []change) (item, bool) {
	rec := it.rec.Record // a copy
	size := int(it.rec.size)
	alert := false
	deadline := false
	alive := rec.Alive == nil
	for _, c := range changes {
		if c.foreign || c.event.Deleted {
			return it, false
		}
		ok := false
		value := string(c.event.Value)
		switch c.field {
		case metadata.FieldAlertAt:
			size += len(value) - len(metadata.FormatTime(rec.AlertAt))
			rec.AlertAt, ok = readTime(value)
			alert = true
		case metadata.FieldAutoUnlockAt:
			size += len(value) - len(metadata.FormatTime(rec.AutoUnlockAt))
			rec.AutoUnlockAt, ok = readTime(value)
			rec.DeadlineRevision = c.event.ModRevision
			deadline = true
		case metadata.FieldAlive:
			size += len(c.field) + len(value) - aliveSize(rec.Alive)
			rec.Alive, ok = readAlive(value)
			rec.Alive.Revision = c.event.ModRevision
			alive = true
		}
		if !ok {
			return it, false
		}
		rec.Revision = c.event.ModRevision
	}
	return it.with(&rec, size), alert && deadline && alive && size <= maxCanonical
}

func readTime(value string) (time.Time, bool) {
	at, err := metadata.ParseTime(value)
	return at, err == nil && canonicalTime(value)
}

func readAlive(value string) (*metadata.Alive, bool) {
	at, progress, _ := strings.Cut(value, " ")
	alive := &metadata.Alive{Progress: progress}
	var ok bool
	alive.At, ok = readTime(at)
	return alive, ok && canonicalAlive(value, alive) && len(progress) <= metadata.MaxTextBytes &&
		utf8.ValidString(progress)
}

func aliveSize(a *metadata.Alive) int {
	if a == nil {
		return 0
	}
	return len(metadata.FieldAlive) + len(metadata.FormatAlive(a.At, a.Progress))
}

// released reports whether the changes delete all keys of a canonical lock.
func released(it item, changes []change) bool {
	for _, c := range changes {
		if c.foreign || !c.event.Deleted {
			return false
		}
	}
	return len(changes) == it.rec.own.count(it.rec.Attributes, it.rec.Alive)
}

// expand returns the keys of a canonical lock as if they had been read. They decode to the same record, though the
// document may be shorter.
func expand(it item) *irregular {
	r := &it.rec.Record
	o := &irregular{}
	o.set(keptField{Field: metadata.Field{Name: metadata.FieldUUID, Value: r.UUID, CreateRevision: r.Token,
		ModRevision: r.Token}})
	o.set(keptField{Field: metadata.Field{Name: metadata.FieldAlertAt, Value: metadata.FormatTime(r.AlertAt),
		ModRevision: r.DeadlineRevision}})
	o.set(keptField{Field: metadata.Field{Name: metadata.FieldAutoUnlockAt, Value: metadata.FormatTime(r.AutoUnlockAt),
		ModRevision: r.DeadlineRevision}})
	if r.Alive != nil {
		o.set(keptField{Field: metadata.Field{Name: metadata.FieldAlive,
			Value: metadata.FormatAlive(r.Alive.At, r.Alive.Progress), ModRevision: r.DeadlineRevision}})
	}
	for i := range o.fields {
		o.fields[i].size = len(o.fields[i].Name) + len(o.fields[i].Value)
	}
	if it.rec.own != 0 {
		o.expandPlain(it.rec)
		return o
	}
	o.set(keptField{
		Field: metadata.Field{Name: metadata.FieldMetadata, Value: canonicalDocument(r), ModRevision: r.Token},
		size:  int(it.rec.size) - o.size(),
	})
	return o
}

// canonicalDocument writes a metadata document that decodes to the same members as the one the record was read from.
func canonicalDocument(r *metadata.Record) string {
	members := make(map[string]any, len(r.Attributes)+8)
	maps.Copy(members, r.Attributes)
	for name, value := range r.Members() {
		members[name] = value
	}
	b, err := json.Marshal(members)
	if err != nil {
		return "{}" // impossible for what Decode yields
	}
	return string(b)
}
