package lockview

import (
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxMisplaced is how many misplaced records are kept; further ones only count as foreign keys.
const maxMisplaced = 1000

// misplaced is a record that a client wrote where no lock's record can be. The prefix of its keys serves as its name.
type misplaced struct {
	irregular
	rec     *metadata.Record // nil while it has no uuid: then its writer does not consider it held
	stamped bool             // rec.Seen is set
}

// misplacedRecords holds the misplaced records.
type misplacedRecords struct {
	layout   protocol.Layout
	byPrefix map[string]*misplaced
	version  uint64 // grows with every change
}

// apply adds or removes a foreign key if it belongs to a misplaced record.
func (a *misplacedRecords) apply(kv protocol.KV, deleted bool) {
	prefix, field, ok := a.layout.Misplaced(kv.Key)
	if !ok {
		return
	}
	m := a.byPrefix[prefix]
	switch {
	case deleted && m == nil || m == nil && len(a.byPrefix) >= maxMisplaced:
		return
	case deleted:
		m.remove(field)
	default:
		if m == nil {
			m = &misplaced{}
			a.byPrefix[prefix] = m
		}
		m.set(truncate(metadata.Field{Name: field, Value: string(kv.Value), CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision}))
	}
	a.version++
	if len(m.fields) == 0 {
		delete(a.byPrefix, prefix)
		return
	}
	before := m.rec
	if m.rec = nil; !m.hasUUID() {
		return
	}
	rec := m.record(prefix)
	a.layout.Misplace(&rec)
	m.stamped = false
	m.rec = &rec
	m.keepSeen(before)
}

// replace replaces the records by those of a list.
func (a *misplacedRecords) replace(listed misplacedRecords) {
	for prefix, m := range listed.byPrefix {
		if known := a.byPrefix[prefix]; known != nil && known.stamped {
			m.keepSeen(known.rec)
		}
	}
	a.byPrefix = listed.byPrefix
	a.version++
}

func (m *misplaced) hasUUID() bool {
	_, ok := m.find(metadata.FieldUUID)
	return ok
}

// keepSeen keeps the times at which the same hold was observed before.
func (m *misplaced) keepSeen(before *metadata.Record) {
	if m.rec != nil && before != nil && m.rec.Token == before.Token {
		m.rec.Seen = before.Seen
		m.stamped = true
	}
}
