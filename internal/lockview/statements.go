package lockview

import (
	"maps"
	"slices"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxLoose is how many statements are kept that are about no lock that is held. One usually follows its record, but
	// a list reads it first.
	maxLoose = 10_000
	// maxLooseBytes bounds the statements that a list keeps until it knows the locks.
	maxLooseBytes = 64 << 20
)

// statements holds what witnesses say, by the uuid in the key.
type statements struct {
	deaths, suspicions map[string]*metadata.Statement
	// loose is at least the number of statements that are about no lock, except of those whose lock went meanwhile.
	loose int
	bytes int // of those listed
}

func newStatements() statements {
	return statements{deaths: map[string]*metadata.Statement{}, suspicions: map[string]*metadata.Statement{}}
}

// of returns the statements of the kind of key.
func (s *statements) of(key protocol.Key) map[string]*metadata.Statement {
	if key.Kind == protocol.KindDeath {
		return s.deaths
	}
	return s.suspicions
}

// list takes in a statement that a list read.
func (s *statements) list(key protocol.Key, st *metadata.Statement, size int) {
	if s.bytes += size; st != nil && s.bytes <= maxLooseBytes {
		s.of(key)[key.ID] = st
	}
}

// state applies an event on a statement, and returns the locks that the old and the new one are about.
func (s *snapshot) state(key protocol.Key, st *metadata.Statement) (locks []string) {
	all := s.stated.of(key)
	if before := all[key.ID]; before != nil {
		locks = append(locks, before.Lock)
	}
	delete(all, key.ID)
	if st == nil {
		return locks
	}
	if s.stated.loose++; s.stated.loose > maxLoose {
		s.dropLoose()
	}
	all[key.ID] = st
	return append(locks, st.Lock)
}

// dropLoose forgets the statements that are about no lock that is held.
func (s *snapshot) dropLoose() {
	s.stated.loose = 0
	loose := func(_ string, st *metadata.Statement) bool { return s.isLoose(st) }
	maps.DeleteFunc(s.stated.deaths, loose)
	maps.DeleteFunc(s.stated.suspicions, loose)
}

func (s *snapshot) isLoose(st *metadata.Statement) bool {
	it, held := s.locks.get(st.Lock)
	return !held || it.rec.Death != st && it.rec.Suspicion != st
}

// boundLoose counts the statements that are about no lock, and forgets them if there are too many.
func (s *snapshot) boundLoose() {
	s.stated.loose = 0
	for _, all := range []map[string]*metadata.Statement{s.stated.deaths, s.stated.suspicions} {
		for _, st := range all {
			if s.isLoose(st) {
				s.stated.loose++
			}
		}
	}
	if s.stated.loose > maxLoose {
		s.dropLoose()
	}
}

// heed attaches to a record, which no reader has seen yet, what witnesses say of its hold.
func (s *snapshot) heed(it item) {
	if it.rec == nil || len(s.stated.deaths)+len(s.stated.suspicions) == 0 {
		return
	}
	it.rec.Heed(s.stated.deaths[it.rec.UUID], s.stated.suspicions[it.rec.UUID])
}

// heeded returns the record with what witnesses say of it now; news reports whether it did not have that.
func (s *snapshot) heeded(it item) (rec *metadata.Record, news bool) {
	death, suspicion := s.stated.deaths[it.rec.UUID], s.stated.suspicions[it.rec.UUID]
	if death == it.rec.Death && suspicion == it.rec.Suspicion {
		return nil, false
	}
	copied := it.rec.Record
	rec = &copied
	rec.Heed(death, suspicion)
	return rec, rec.Death != it.rec.Death || rec.Suspicion != it.rec.Suspicion
}

// restate attaches to a lock what witnesses say now; ok reports whether that is news.
func (s *snapshot) restate(name string) (news step, ok bool) {
	it, held := s.locks.get(name)
	if !held {
		return step{}, false
	}
	rec, ok := s.heeded(it)
	if !ok {
		return step{}, false
	}
	after := it.with(rec, int(it.rec.size))
	s.locks.put(after)
	return step{it, after}, true
}

// restateAll attaches to locks what witnesses say now. The caller holds mu of the view.
func (s *snapshot) restateAll(v *View, locks []string) (steps []step) {
	for _, lock := range locks {
		if news, ok := s.restate(lock); ok {
			// a list that is being read may have the record without it
			v.touch(protocol.Key{Kind: protocol.KindField, Lock: lock})
			steps = append(steps, news)
		}
	}
	return steps
}

// reconcileStatements replaces the statements by those of a list, except for what was touched meanwhile. It returns the
// locks that the difference is about.
func (v *View) reconcileStatements(b *builder, t *touched) (locks []string) {
	now := v.snap.stated
	listed := b.snap.stated
	for _, kind := range []protocol.Kind{protocol.KindDeath, protocol.KindSuspicion} {
		before := now.of(protocol.Key{Kind: kind})
		after := listed.of(protocol.Key{Kind: kind})
		for id, known := range before {
			st, ok := after[id]
			switch {
			case t.statements[protocol.Key{Kind: kind, ID: id}], ok && b.reuse && st.Revision == known.Revision:
				after[id] = known // keeps when it was seen first
			default:
				locks = append(locks, known.Lock)
			}
		}
		for id, st := range after {
			switch _, known := before[id]; {
			case known:
			case t.statements[protocol.Key{Kind: kind, ID: id}]:
				delete(after, id)
			default:
				locks = append(locks, st.Lock)
			}
		}
		for id, st := range after {
			if known := before[id]; known != nil && known != st {
				locks = append(locks, st.Lock)
			}
		}
	}
	v.snap.stated = listed
	slices.Sort(locks)
	return slices.Compact(locks)
}

// statement decodes a statement; it returns nil if it cannot be read, or is about another hold than its key says.
func statement(key protocol.Key, kv protocol.KV, v *View) *metadata.Statement {
	st := protocol.ReadStatement(key.ID, kv)
	if st == nil {
		return nil
	}
	for _, text := range []*string{&st.Cause, &st.Signal, &st.Detail, &st.Witness, &st.By} {
		*text = v.intern.text(clip(*text))
	}
	st.How = clip(st.How)
	st.Seen = v.Clock()
	return st
}

// eventStatement is what an event leaves of a statement; nil if that is nothing.
func eventStatement(key protocol.Key, e *protocol.Event, v *View) *metadata.Statement {
	if e.Deleted {
		return nil
	}
	return statement(key, e.KV, v)
}
