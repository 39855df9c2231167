package lockview

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxForeignSample is how many foreign keys are remembered by name.
	maxForeignSample = 100
	// maxForeignLocks is how many lock names are remembered that are not held but have foreign keys in their range. If
	// there are more, every new lock is assumed to have some: deleting it range by range is slower, but never deletes
	// foreign keys.
	maxForeignLocks = 10_000
)

// foreignKeys counts the foreign keys below the prefix.
type foreignKeys struct {
	total    int
	sample   map[string]bool // some of them
	others   map[string]bool // those of other lock libraries
	in       map[string]int  // how many lie in a lock's range, by lock; 0 = unknown
	overflow bool            // there are more such locks than in holds
}

// add adds n foreign keys, or removes them if n is negative; key is one of them. They lie in the range of lock, or of
// none if that is empty; held reports whether that lock has a record.
func (f *foreignKeys) add(key, lock string, n int, held bool) {
	f.total += n
	switch key = strings.Clone(text.Cut(key, metadata.MaxTextBytes)); {
	case n < 0:
		delete(f.sample, key)
	case len(f.sample) < maxForeignSample:
		f.sample[key] = true
	}
	if lock == "" {
		return
	}
	known, ok := f.in[lock]
	switch {
	case !ok && n < 0:
	case !ok && !held && len(f.in) >= maxForeignLocks:
		f.overflow = true
	case ok && known > 0 && known+n <= 0:
		delete(f.in, lock)
	case !ok || known > 0:
		f.in[lock] = known + n
	}
}

// noteOther notes a foreign key that was written, or deleted if it has no lease, if it is of another lock library.
func (f *foreignKeys) noteOther(kv protocol.KV) {
	delete(f.others, kv.Key)
	if kv.IsContender() && len(f.others) < maxForeignLocks {
		f.others[kv.Key] = true
	}
}

// maxMisplaced is how many misplaced records are kept; further ones only count as foreign keys.
const maxMisplaced = 1000

// misplaced is a record that a client wrote where no lock's record can be. The prefix of its keys serves as its name.
type misplaced struct {
	keys
	rec *metadata.Record // nil while it has no uuid: its writer does not consider it held
}

type misplacedRecords struct {
	layout   protocol.Layout
	byPrefix map[string]*misplaced
}

// apply adds or removes a foreign key, which arrived at now, if it belongs to a misplaced record.
func (a *misplacedRecords) apply(kv protocol.KV, deleted bool, now time.Duration) {
	prefix, field, ok := a.layout.ParseMisplaced(kv.Key)
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
		m.set(fieldOf(field, kv), kv.CreateRevision != kv.ModRevision)
	}
	if len(m.fields) == 0 {
		delete(a.byPrefix, prefix)
		return
	}
	before := m.rec
	m.rec = nil
	if _, hasUUID := m.find(lockrecord.FieldUUID); !hasUUID {
		return
	}
	rec := m.record(prefix)
	a.layout.MarkMisplaced(&rec)
	rec.Seen = metadata.Seen{First: now, Changed: now}
	m.rec = &rec
	m.keepSeen(before)
}

func (a *misplacedRecords) replace(listed misplacedRecords) {
	for prefix, m := range listed.byPrefix {
		if known := a.byPrefix[prefix]; known != nil {
			m.keepSeen(known.rec)
		}
	}
	a.byPrefix = listed.byPrefix
}

// keepSeen keeps the times at which the same hold was observed before.
func (m *misplaced) keepSeen(before *metadata.Record) {
	if m.rec != nil && before != nil && m.rec.Token == before.Token {
		m.rec.Seen = before.Seen
	}
}
