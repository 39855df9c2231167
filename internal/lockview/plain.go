package lockview

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ownKeys says which members of a canonical lock are keys of their own, besides its attributes; zero means that it has
// a document instead.
type ownKeys uint32

const (
	ownOwner ownKeys = 1 << iota
	ownHostname
	ownPurpose
	ownPID
	ownLockedAt
	ownLockDelay
	ownBootID
	ownProcessStart
	ownPIDNamespace
	ownCgroupID
	ownPodNamespace
	ownPodName
	ownPodUID
	ownContainer
	ownDetached
	ownBacktrace
	ownClient
	noDocument // set in all plain locks
)

// opaque are the keys whose values the record does not tell. A lock with both is irregular, because the sizes of both
// do not follow from that of the lock.
const opaque = ownBacktrace | ownClient

// ownNames returns the names of the members in the order of their bits.
func ownNames() [17]string {
	return [...]string{metadata.FieldOwner, metadata.FieldHostname, metadata.FieldPurpose, metadata.FieldPID,
		metadata.FieldLockedAt, metadata.FieldLockDelay, metadata.FieldBootID, metadata.FieldProcessStart,
		metadata.FieldPIDNamespace, metadata.FieldCgroupID, metadata.FieldPodNamespace, metadata.FieldPodName,
		metadata.FieldPodUID, metadata.FieldContainer, metadata.FieldDetached, metadata.FieldBacktrace,
		metadata.FieldClient}
}

// ownKey returns the bit of a member.
func ownKey(name string) (key ownKeys, ok bool) {
	for i, known := range ownNames() {
		if name == known {
			return 1 << i, true
		}
	}
	return 0, false
}

// count returns how many keys a canonical lock with these attributes has.
func (k ownKeys) count(attributes map[string]any, alive *metadata.Alive) int {
	n := 4 // with the document
	if k != 0 {
		n = 3 + bits.OnesCount32(uint32(k&^noDocument)) + len(attributes)
	}
	if alive != nil {
		n++
	}
	return n
}

// has reports whether a plain lock has this key, besides those that the protocol acts on.
func (k ownKeys) has(attributes map[string]any, name string) bool {
	if key, ok := ownKey(name); ok {
		return k&key != 0
	}
	_, ok := attributes[name]
	return ok
}

// ownKeyOf returns the bit of a field of a plain lock, zero for an attribute; ok is false if the record does not tell
// the field's value.
func ownKeyOf(r *metadata.Record, f metadata.Field) (key ownKeys, ok bool) {
	if key, ok = ownKey(f.Name); !ok {
		text, isText := r.Attributes[f.Name].(string)
		return 0, isText && text == f.Value
	}
	return key, key&opaque != 0 || ownValue(r, key) == f.Value
}

// ownValue returns the value of a member as a key of its own, empty for those that the record does not tell.
func ownValue(r *metadata.Record, key ownKeys) string {
	switch key {
	case ownOwner:
		return r.Owner
	case ownHostname:
		return r.Hostname
	case ownPurpose:
		return r.Purpose
	case ownPID:
		return strconv.FormatInt(r.PID, 10)
	case ownLockedAt:
		return metadata.FormatTime(r.LockedAt)
	case ownLockDelay:
		return strconv.FormatInt(int64(max(0, r.LockDelay)/time.Second), 10)
	}
	if r.Process == nil {
		return ""
	}
	return ownProcessValue(r.Process, key)
}

func ownProcessValue(p *metadata.Process, key ownKeys) string {
	switch key {
	case ownBootID:
		return p.BootID
	case ownProcessStart:
		return strconv.FormatInt(p.Start, 10)
	case ownPIDNamespace:
		return strconv.FormatInt(p.PIDNamespace, 10)
	case ownCgroupID:
		return strconv.FormatInt(p.CgroupID, 10)
	case ownPodNamespace:
		return p.PodNamespace
	case ownPodName:
		return p.PodName
	case ownPodUID:
		return p.PodUID
	case ownContainer:
		return p.Container
	case ownDetached:
		return strconv.FormatBool(p.Detached)
	}
	return ""
}

// expandPlain adds the keys that a plain lock has instead of a document.
func (o *irregular) expandPlain(h *held) {
	r := &h.Record
	var unknown string // the key that has the rest of the lock's size
	for i, name := range ownNames() {
		switch key := ownKeys(1 << i); {
		case h.own&key == 0:
		case key&opaque != 0:
			unknown = name
		default:
			o.setOwn(r.Token, name, ownValue(r, key))
		}
	}
	for name, value := range r.Attributes {
		text, _ := value.(string) // it is one: else the lock would not be plain
		o.setOwn(r.Token, name, text)
	}
	if unknown != "" {
		o.set(keptField{Field: metadata.Field{Name: unknown, ModRevision: r.Token}, size: int(h.size) - o.size()})
	}
}

func (o *irregular) setOwn(token int64, name, value string) {
	o.set(keptField{Field: metadata.Field{Name: name, Value: value, ModRevision: token},
		size: len(name) + len(value)})
}
