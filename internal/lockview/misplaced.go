package lockview

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxMisplaced is how many records are kept that lie at the keys of no lock; more are counted as foreign keys only.
const maxMisplaced = 1000

// misplaced is a record that a client wrote where no lock's record can be.
type misplaced struct {
	odd
	rec  *metadata.Record // nil while it has no uuid: then nobody takes it for held
	seen bool             // its record says since when
}

// misplace takes in a key that fits no layout.
func (p *picture) misplace(kv protocol.KV, deleted bool) {
	place, field, ok := p.layout.Misplaced(kv.Key)
	if !ok {
		return
	}
	m := p.misplaced[place]
	switch {
	case deleted && m == nil || m == nil && len(p.misplaced) >= maxMisplaced:
		return
	case deleted:
		m.remove(field)
	default:
		if m == nil {
			m = &misplaced{}
			p.misplaced[place] = m
		}
		m.set(keep(metadata.Field{Name: field, Value: string(kv.Value), CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision}))
	}
	p.moves++
	if len(m.fields) == 0 {
		delete(p.misplaced, place)
		return
	}
	before := m.rec
	if m.rec = nil; !m.holds() {
		return
	}
	rec := m.record(place)
	p.layout.Misplace(&rec)
	m.seen = false
	m.rec = &rec
	m.since(before)
}

func (m *misplaced) holds() bool {
	_, ok := m.find(metadata.FieldUUID)
	return ok
}

// since takes over since when the same hold was seen.
func (m *misplaced) since(before *metadata.Record) {
	if m.rec != nil && before != nil && m.rec.Token == before.Token {
		m.rec.Seen = before.Seen
		m.seen = true
	}
}

// adoptMisplaced makes the misplaced records those of the list.
func (p *picture) adoptMisplaced(listed map[string]*misplaced) {
	for place, m := range listed {
		if known := p.misplaced[place]; known != nil && known.seen {
			m.since(known.rec)
		}
	}
	p.misplaced = listed
	p.moves++
}

// Shown returns what people see: the locks, and with them the records that lie at the keys of no lock, under their
// place as a name, where no lock has that. It is sorted by name, and the same slice until something changes. Who
// judges, removes or waits asks [View.Locks].
func (v *View) Shown() []*metadata.Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	locks := v.held()
	if len(v.pic.misplaced) == 0 {
		return locks
	}
	if v.shown != nil && v.moves == v.pic.moves {
		return v.shown
	}
	all := slices.Clone(locks)
	for _, m := range v.pic.misplaced {
		if m.rec == nil {
			continue
		}
		if !m.seen {
			m.rec.Seen = metadata.Seen{First: v.Clock(), Changed: v.Clock()}
			m.seen = true
		}
		if _, held := v.pic.locks.get(m.rec.Name); !held {
			all = append(all, m.rec)
		}
	}
	slices.SortFunc(all, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	v.shown = all
	v.moves = v.pic.moves
	return all
}
