package lockview

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A lock is plain when its keys are just uuid, alert_at, auto_unlock_at, metadata and perhaps alive, written as the
// protocol's transactions write them: the first and the last of these at the token's revision, the others together. The
// record of a plain lock says all there is to know about its keys, so nothing else is kept of it. All other locks are
// odd.

// maxPlain leaves room for an alive key, so that a plain lock stays below the limit of a record's size.
const maxPlain = metadata.MaxRecordBytes - 2*metadata.MaxTextBytes

// plain tells whether the lock with these keys, which decode to rec, is plain.
func plain(rec *metadata.Record, fields []metadata.Field, size int) bool {
	keys := 4
	if rec.Alive != nil {
		keys = 5
	}
	if rec.Problems != nil || len(fields) != keys || size > maxPlain {
		return false
	}
	document := false
	for _, f := range fields {
		switch f.Name {
		case metadata.FieldUUID:
			if f.ModRevision != f.CreateRevision {
				return false
			}
		case metadata.FieldMetadata:
			if document = f.ModRevision == rec.Token; !document {
				return false
			}
		case metadata.FieldAlertAt, metadata.FieldAutoUnlockAt:
			if f.ModRevision != rec.DeadlineRevision || !canonicalTime(f.Value) {
				return false
			}
		case metadata.FieldAlive:
			if f.ModRevision != rec.DeadlineRevision || !canonicalAlive(f.Value, rec.Alive) {
				return false
			}
		}
	}
	return document
}

// canonicalTime tells whether a time that could be read is written as FormatTime writes it: without zeros at its end.
func canonicalTime(s string) bool { return !strings.Contains(s, ".") || s[len(s)-1] != '0' }

func canonicalAlive(s string, a *metadata.Alive) bool {
	at, progress, blank := strings.Cut(s, " ")
	return canonicalTime(at) && progress == a.Progress && blank == (a.Progress != "")
}

// extended returns the plain lock after one revision's changes, if these are what the protocol's alive transaction
// writes.
func extended(it item, changes []change) (item, bool) {
	rec, size := *it.rec, it.size
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
			alive = true
		}
		if !ok {
			return it, false
		}
		rec.Revision = c.event.ModRevision
	}
	return item{&rec, size}, alert && deadline && alive && size <= maxPlain
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

// released tells whether the changes delete the whole of a plain lock.
func released(it item, changes []change) bool {
	keys := 4
	if it.rec.Alive != nil {
		keys = 5
	}
	for _, c := range changes {
		if c.foreign || !c.event.Deleted {
			return false
		}
	}
	return len(changes) == keys
}

// unfold is a plain lock as if its keys had been read: all of them say the same, though the document is shorter.
func unfold(it item) *odd {
	r := it.rec
	o := &odd{}
	o.set(kept{Field: metadata.Field{Name: metadata.FieldUUID, Value: r.UUID, CreateRevision: r.Token,
		ModRevision: r.Token}})
	o.set(kept{Field: metadata.Field{Name: metadata.FieldAlertAt, Value: metadata.FormatTime(r.AlertAt),
		ModRevision: r.DeadlineRevision}})
	o.set(kept{Field: metadata.Field{Name: metadata.FieldAutoUnlockAt, Value: metadata.FormatTime(r.AutoUnlockAt),
		ModRevision: r.DeadlineRevision}})
	if r.Alive != nil {
		o.set(kept{Field: metadata.Field{Name: metadata.FieldAlive,
			Value: metadata.FormatAlive(r.Alive.At, r.Alive.Progress), ModRevision: r.DeadlineRevision}})
	}
	for i := range o.fields {
		o.fields[i].size = len(o.fields[i].Name) + len(o.fields[i].Value)
	}
	o.set(kept{
		Field: metadata.Field{Name: metadata.FieldMetadata, Value: restate(r), ModRevision: r.Token},
		size:  it.size - o.size(),
	})
	return o
}

// restate writes the metadata document that says of the record what the document said from which it was read.
func restate(r *metadata.Record) string {
	members := make(map[string]any, len(r.Attributes)+5)
	for name, value := range r.Attributes {
		members[name] = value
	}
	for name, value := range map[string]string{metadata.FieldOwner: r.Owner, metadata.FieldHostname: r.Hostname,
		metadata.FieldPurpose: r.Purpose} {
		if value != "" {
			members[name] = value
		}
	}
	if r.PID != 0 {
		members[metadata.FieldPID] = strconv.FormatInt(r.PID, 10)
	}
	if !r.LockedAt.IsZero() {
		members[metadata.FieldLockedAt] = metadata.FormatTime(r.LockedAt)
	}
	b, err := json.Marshal(members)
	if err != nil {
		return "{}" // not for what Decode yields
	}
	return string(b)
}
