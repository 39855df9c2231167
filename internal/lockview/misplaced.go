package lockview

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxMisplaced is how many misplaced records are kept; further ones only count as foreign keys.
const maxMisplaced = 1000

// misplaced is a record that a client wrote where no lock's record can be. Its place, the prefix of its keys, serves as
// its name.
type misplaced struct {
	irregular
	rec  *metadata.Record // nil while it has no uuid: then its writer does not take it for held
	seen bool             // its record has been stamped
}

// misplace adds or removes a foreign key that belongs to a misplaced record.
func (s *snapshot) misplace(kv protocol.KV, deleted bool) {
	place, field, ok := s.layout.Misplaced(kv.Key)
	if !ok {
		return
	}
	m := s.misplaced[place]
	switch {
	case deleted && m == nil || m == nil && len(s.misplaced) >= maxMisplaced:
		return
	case deleted:
		m.remove(field)
	default:
		if m == nil {
			m = &misplaced{}
			s.misplaced[place] = m
		}
		m.set(truncate(metadata.Field{Name: field, Value: string(kv.Value), CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision}))
	}
	s.moves++
	if len(m.fields) == 0 {
		delete(s.misplaced, place)
		return
	}
	before := m.rec
	if m.rec = nil; !m.holds() {
		return
	}
	rec := m.record(place)
	s.layout.Misplace(&rec)
	m.seen = false
	m.rec = &rec
	m.since(before)
}

func (m *misplaced) holds() bool {
	_, ok := m.find(metadata.FieldUUID)
	return ok
}

// since keeps the times at which the same hold was observed before.
func (m *misplaced) since(before *metadata.Record) {
	if m.rec != nil && before != nil && m.rec.Token == before.Token {
		m.rec.Seen = before.Seen
		m.seen = true
	}
}

// reconcileMisplaced replaces the misplaced records by those of a list.
func (s *snapshot) reconcileMisplaced(listed map[string]*misplaced) {
	for place, m := range listed {
		if known := s.misplaced[place]; known != nil && known.seen {
			m.since(known.rec)
		}
	}
	s.misplaced = listed
	s.moves++
}

// Shown returns what pages and metrics show: the held locks, and the misplaced records under their place as a name,
// unless a lock has that name. It is sorted by name, and the same slice until something changes. To judge, remove or
// wait, use [View.Locks].
func (v *View) Shown() []*metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	locks := v.held()
	if len(v.snap.misplaced) == 0 {
		return locks
	}
	if v.shown != nil && v.moves == v.snap.moves {
		return v.shown
	}
	all := slices.Clone(locks)
	for _, m := range v.snap.misplaced {
		if m.rec == nil {
			continue
		}
		if !m.seen {
			m.rec.Seen = metadata.Seen{First: v.Clock(), Changed: v.Clock()}
			m.seen = true
		}
		if _, held := v.snap.locks.get(m.rec.Name); !held {
			all = append(all, m.rec)
		}
	}
	slices.SortFunc(all, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	v.shown = all
	v.moves = v.snap.moves
	return all
}
