package lockview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxFields is how many keys of a lock are kept: all fields of the protocol and as many attributes as a record may
// have.
const maxFields = lockrecord.MaxAttributes + 32

// keys are the keys of one lock, as far as they are read. They are kept so that a change of one key yields the same
// record as reading all of them again.
type keys struct {
	fields []metadata.Field // sorted by name
	// surplus counts keys beyond maxFields. These attributes would not be shown anyway, but while they are not in
	// memory, the size and the choice of attributes are inexact until the next list.
	surplus int
	newest  int64 // highest mod revision of any key so far
}

// fieldOf returns what is kept of a key. The result does not refer to the key that was read.
func fieldOf(name string, kv protocol.KV) metadata.Field {
	return lockrecord.Brief(kv.Field(protocol.Key{ID: strings.Clone(name)}))
}

func (k *keys) find(name string) (int, bool) {
	return slices.BinarySearchFunc(k.fields, name,
		func(f metadata.Field, name string) int { return strings.Compare(f.Name, name) })
}

// set adds a key or replaces it. again means that it counts already, even if it is not kept.
func (k *keys) set(f metadata.Field, again bool) {
	k.newest = max(k.newest, f.ModRevision)
	i, ok := k.find(f.Name)
	switch {
	case ok:
		k.fields[i] = f
	case len(k.fields) >= maxFields && !lockrecord.IsReserved(f.Name):
		if !again {
			k.surplus++
		}
	default:
		k.fields = slices.Insert(k.fields, i, f)
	}
}

func (k *keys) remove(name string) {
	if i, ok := k.find(name); ok {
		k.fields = slices.Delete(k.fields, i, i+1)
	} else if k.surplus > 0 {
		k.surplus--
	}
}

func (k *keys) clone() keys {
	return keys{fields: slices.Clone(k.fields), surplus: k.surplus, newest: k.newest}
}

// after returns the keys after the changes of one revision.
func (k *keys) after(changes []keyChange) keys {
	after := k.clone()
	for _, c := range changes {
		switch {
		case c.foreign:
		case c.event.Deleted:
			after.remove(c.field)
		default:
			after.set(c.written(), c.event.CreateRevision != c.event.ModRevision)
		}
	}
	return after
}

// same reports whether two readings of a lock found the same keys. It compares revisions, because a key never has two
// values at one revision. For surplus keys, it compares their number and the newest revision.
func (k *keys) same(other *keys) bool {
	return k.surplus == other.surplus && (k.surplus == 0 || k.newest == other.newest) &&
		slices.EqualFunc(k.fields, other.fields, func(a, b metadata.Field) bool {
			return a.Name == b.Name && a.ModRevision == b.ModRevision
		})
}

func (k *keys) record(lock string) metadata.Record {
	rec := lockrecord.DecodeRecord(lock, k.fields)
	if k.surplus > 0 {
		rec.Problems = append(rec.Problems, metadata.Problem{
			Field: "record", Kind: metadata.ProblemTooLarge,
			Text: fmt.Sprintf("more than %d keys, the others are not read", maxFields),
		})
	}
	return rec
}

type keyChange struct {
	field   string
	foreign bool // a foreign key in the lock's range
	event   *protocol.Event
}

func (c keyChange) written() metadata.Field { return fieldOf(c.field, c.event.KV) }
