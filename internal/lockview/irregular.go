package lockview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxKept is how much is kept of a value: more than any limit of a text, so that it decodes to the same text.
	maxKept = 2 * metadata.MaxTextBytes
	// maxFields is how many keys are kept of a lock: all fields of the protocol and as many attributes as a record may
	// have.
	maxFields = metadata.MaxAttributes + 16
	// attributes is the field of the problem that there are too many of them.
	attributes = "attributes"
)

// odd is a lock that is not plain: one that a minimal client wrote key by key, one that somebody repaired by hand, or a
// hostile one. Its keys are kept, so that the change of one of them makes the same record as reading all of them again.
// Large values are cut to what the record shows of them.
type odd struct {
	fields []kept // sorted by name
	// surplus counts keys beyond maxFields. They are attributes that would not be shown, but with them gone from
	// memory, the size and the choice of attributes are not exact any more, until the next list.
	surplus int
	newest  int64 // the highest mod revision that a key ever had
}

// kept is one key of an odd lock.
type kept struct {
	metadata.Field
	size     int                // bytes of name and value in etcd
	problems []metadata.Problem // of the value before it was cut
}

func (o *odd) find(name string) (int, bool) {
	return slices.BinarySearchFunc(o.fields, name,
		func(k kept, name string) int { return strings.Compare(k.Name, name) })
}

func (o *odd) set(k kept) {
	o.newest = max(o.newest, k.ModRevision)
	i, ok := o.find(k.Name)
	switch {
	case ok:
		o.fields[i] = k
	case len(o.fields) >= maxFields && !protocol(k.Name):
		if k.CreateRevision == k.ModRevision { // else it is there already
			o.surplus++
		}
	default:
		o.fields = slices.Insert(o.fields, i, k)
	}
}

func (o *odd) remove(name string) {
	if i, ok := o.find(name); ok {
		o.fields = slices.Delete(o.fields, i, i+1)
	} else if o.surplus > 0 {
		o.surplus--
	}
}

func (o *odd) size() int {
	n := 0
	for _, k := range o.fields {
		n += k.size
	}
	return n
}

func (o *odd) raw() []metadata.Field {
	fields := make([]metadata.Field, len(o.fields))
	for i, k := range o.fields {
		fields[i] = k.Field
	}
	return fields
}

// record decodes the keys.
func (o *odd) record(lock string) metadata.Record {
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

func protocol(field string) bool {
	switch field {
	case metadata.FieldUUID, metadata.FieldAlertAt, metadata.FieldAutoUnlockAt, metadata.FieldAlive,
		metadata.FieldMetadata,
		metadata.FieldOwner, metadata.FieldHostname, metadata.FieldPID, metadata.FieldLockedAt, metadata.FieldPurpose,
		metadata.FieldBacktrace, metadata.FieldClient:
		return true
	}
	return false
}
