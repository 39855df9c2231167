package lockview

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Reading of the documents outside the records.

// document decodes one of the protocol's documents; ok reports whether it is readable.
func document[T metadata.Ticket | metadata.Ending](value []byte) (d T, ok bool) {
	if len(value) > lockrecord.MaxRecordBytes { // valid ones are never that large, and decoding costs time
		return d, false
	}
	read, err := protocol.Unmarshal[T](value)
	if err != nil {
		return d, false
	}
	return read, true
}

// clip cuts text from outside to the length that the protocol allows.
func clip(s string) string {
	if len(s) <= metadata.MaxTextBytes {
		return s
	}
	return strings.ToValidUTF8(strings.Clone(s[:metadata.MaxTextBytes]), "")
}

// decodeWaiter decodes a ticket that was first seen at seen. A ticket that cannot be read still has its position in the
// queue.
func decodeWaiter(lock, ticket string, kv protocol.KV, seen time.Duration) metadata.Waiter {
	t, _ := document[metadata.Ticket](kv.Value)
	t.UUID = clip(t.UUID)
	t.Under = clip(t.Under)
	for _, text := range lockrecord.Texts(&t.Identity) {
		*text = clip(*text)
	}
	return metadata.Waiter{Ticket: t, Name: strings.Clone(lock), ID: strings.Clone(ticket),
		Revision: kv.CreateRevision, Seen: seen}
}

func decodeDelay(lock string, kv protocol.KV) metadata.LockDelay {
	d := protocol.ReadDelay(strings.Clone(lock), kv)
	for _, text := range []*string{&d.UUID, &d.Owner, &d.Hostname, &d.Purpose, &d.By} {
		*text = clip(*text)
	}
	return d
}

// decodeStatement decodes a statement that was first seen at seen; it returns nil if it cannot be read or is about a
// hold other than the one in its key.
func decodeStatement(key protocol.Key, kv protocol.KV, seen time.Duration) *metadata.Statement {
	st := protocol.ReadStatement(key.ID, kv)
	if st == nil {
		return nil
	}
	for _, text := range []*string{&st.Cause, &st.Reason, &st.Signal, &st.Detail, &st.Witness, &st.By} {
		*text = clip(*text)
	}
	st.Seen = seen
	return st
}

func decodeEnding(e *protocol.Event) *metadata.Ending {
	if e == nil {
		return nil
	}
	ending, ok := document[metadata.Ending](e.Value)
	if !ok {
		return nil
	}
	return &ending
}

// maxUnlockers is how many unlockers are kept: more than any installation runs, and few enough that a hostile writer
// cannot fill the memory.
const maxUnlockers = 1000

// unlocker is an unlocker as its record was last read.
type unlocker struct {
	protocol.Unlocker
	revision int64
	heard    time.Time // when its record arrived, or was listed
	readable bool
}

// runs reports whether the unlocker is running, for a view that last heard from etcd at the given time. While etcd is
// silent, no unlocker counts as stopped.
func (u unlocker) runs(heard time.Time) bool {
	return u.readable && heard.Sub(u.heard) <= protocol.PresenceTTL
}

func decodeUnlocker(instance string, kv protocol.KV, arrived time.Time) unlocker {
	p := protocol.ReadPresence(instance, kv.Value, kv.Lease)
	if p == nil { // it says nothing about that unlocker's clock
		nameless := metadata.Presence{ID: clip(instance)}
		return unlocker{Unlocker: protocol.Unlocker{Presence: nameless}, revision: kv.ModRevision, heard: time.Now()}
	}
	return unlocker{Unlocker: protocol.Unlocker{Presence: *p, ArrivedAt: arrived}, revision: kv.ModRevision,
		heard: time.Now(), readable: true}
}

const (
	// maxUnmatched is how many statements that are not about a held lock are kept. A statement usually follows its
	// record, but a list reads it first.
	maxUnmatched = 10_000
	// maxListedBytes bounds the statements that a list keeps until it knows the locks.
	maxListedBytes = 64 << 20
)

// statements holds the witnesses' statements, by the uuid in the key.
type statements struct {
	deaths, suspicions map[string]*metadata.Statement
	// maybeUnmatched counts the statements written since unmatched ones were dropped.
	maybeUnmatched int
	bytes          int // of those listed
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

// list stores a statement that a list read.
func (s *statements) list(key protocol.Key, st *metadata.Statement, size int) {
	if s.bytes += size; st != nil && s.bytes <= maxListedBytes {
		s.of(key)[key.ID] = st
	}
}
