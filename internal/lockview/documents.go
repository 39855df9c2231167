package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Reading of the documents outside the records.

// decodeStatement decodes a statement that was first seen at seen; it returns nil if it cannot be read or is about a
// hold other than the one in its key.
func decodeStatement(key protocol.Key, kv protocol.KV, seen time.Duration) *metadata.Statement {
	st := protocol.DecodeStatement(key.ID, kv)
	if st != nil {
		st.Seen = seen
	}
	return st
}

func decodeEnding(e *protocol.Event) *metadata.Ending {
	if e == nil || len(e.Value) > lockrecord.MaxRecordBytes { // valid ones are never that large
		return nil
	}
	ending, err := protocol.Unmarshal[metadata.Ending](e.Value)
	if err != nil {
		return nil
	}
	return &ending
}

// maxUnlockers is how many unlockers are kept: more than any installation runs, and few enough that a hostile writer
// cannot fill the memory.
const maxUnlockers = 1000

// unlocker is an unlocker as its record was last read.
type unlocker struct {
	metadata.Presence
	revision int64
	heard    time.Time // when its record arrived, or was listed
}

// runs reports whether the unlocker is running, for a view that last heard from etcd at the given time. While etcd is
// silent, no unlocker counts as stopped.
func (u unlocker) runs(heard time.Time) bool { return heard.Sub(u.heard) <= protocol.PresenceTTL }

// putUnlocker adds or changes an unlocker. One whose record cannot be read says nothing about its clock, and is
// removed.
func (s *snapshot) putUnlocker(instance string, kv protocol.KV, arrived time.Time) {
	_, known := s.unlockers[instance]
	p := protocol.DecodePresence(instance, kv.Value, kv.Lease)
	switch {
	case p == nil:
		delete(s.unlockers, instance)
	case known || len(s.unlockers) < maxUnlockers:
		p.ArrivedAt = arrived
		s.unlockers[instance] = unlocker{*p, kv.ModRevision, time.Now()}
	}
}

const (
	// maxUnmatched is how many statements that are not about a held lock are kept. A statement usually follows its
	// record, but a list reads it first.
	maxUnmatched = 10_000
	// maxListedBytes bounds the statements that a list keeps until it knows the locks.
	maxListedBytes = 64 << 20
)

// statements holds the witnesses' statements by their keys: proofs and suspicions.
type statements struct {
	byKey map[protocol.Key]*metadata.Statement
	// maybeUnmatched counts the statements written since unmatched ones were dropped.
	maybeUnmatched int
	bytes          int // of those listed
}

// list stores a statement that a list read.
func (s *statements) list(key protocol.Key, st *metadata.Statement, size int) {
	if s.bytes += size; st != nil && s.bytes <= maxListedBytes {
		s.byKey[key] = st
	}
}
