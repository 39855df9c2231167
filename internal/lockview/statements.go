package lockview

import (
	"maps"

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

// restate attaches to a lock what witnesses say now; ok reports whether that is news.
func (s *snapshot) restate(name string) (news step, ok bool) {
	it, held := s.locks.get(name)
	if !held {
		return step{}, false
	}
	kept := *it.rec // a copy
	kept.Heed(s.stated.deaths[kept.UUID], s.stated.suspicions[kept.UUID])
	if kept.Death == it.rec.Death && kept.Suspicion == it.rec.Suspicion {
		return step{}, false
	}
	after := item{rec: &kept}
	s.locks.put(after)
	return step{it, after}, true
}
