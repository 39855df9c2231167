package etcdread

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Backtraces are the backtraces of locks that need a person. They are not in the snapshot, because all of them would
// fill the memory; these few are fetched ahead, so that the list can name the line of code and the page of a lock has
// it when etcd is away.
type Backtraces struct {
	readRecord func(ctx context.Context, lock string) (metadata.FullRecord, int64, error)
	reader     stacktrace.Parser

	mu      sync.Mutex
	kept    map[hold]Backtrace
	bytes   int
	version uint64
}

// NewBacktraces returns an empty store, which reads locks by this function.
func NewBacktraces(document func(context.Context, string) (metadata.FullRecord, int64, error),
	reader stacktrace.Parser) *Backtraces {
	return &Backtraces{readRecord: document, reader: reader, kept: map[hold]Backtrace{}}
}

// hold names a backtrace: each hold of a lock has its own.
type hold struct {
	name  string
	token int64
}

// Backtrace is where in the code a lock was taken.
type Backtrace struct {
	Text  string
	First string // the first frame of own code, in one line
}

const (
	traceReadRest = 20 * time.Millisecond // between two reads, so that a big incident does not become one of etcd
	maxTraces     = 32 << 20              // bytes kept
)

// Fetch reads the backtraces that are wanted and not there, most urgent locks first, and drops those that are not
// wanted.
func (s *Backtraces) Fetch(ctx context.Context, snapshot *locks.Snapshot) {
	var urgent []*locks.Row
	for _, r := range snapshot.InOrder(locks.Order{By: locks.MostUrgent}) {
		if r.Display == locks.Held {
			break
		}
		urgent = append(urgent, r)
	}
	for _, r := range s.retain(urgent) {
		if !s.fetchOne(ctx, r) {
			return
		}
	}
}

// retain drops the backtraces of all other holds, and returns the holds without one; none if there is no room.
func (s *Backtraces) retain(wanted []*locks.Row) (missing []*locks.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := maps.Clone(s.kept)
	for _, r := range wanted {
		key := hold{r.Name, r.Token}
		if _, ok := s.kept[key]; !ok {
			missing = append(missing, r)
		}
		delete(others, key)
	}
	for key, k := range others {
		delete(s.kept, key)
		s.count(key, k, -1)
	}
	if s.bytes > maxTraces {
		return nil
	}
	return missing
}

// count adds a backtrace to the sums, or subtracts it.
func (s *Backtraces) count(key hold, k Backtrace, sign int) {
	s.bytes += sign * (len(k.Text) + len(key.name))
	if k.First != "" { // a sum: the same in every replica
		s.version += uint64(sign) * locks.Hash(xxhash.Sum64String(key.name), uint64(key.token))
	}
}

// fetchOne reads one backtrace. It returns false if it is pointless to go on.
func (s *Backtraces) fetchOne(ctx context.Context, r *locks.Row) bool {
	reading, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	document, _, err := s.readRecord(reading, r.Name)
	if err != nil {
		return false
	}
	if document.Token == r.Token && !s.keep(hold{r.Name, r.Token}, document.Backtrace) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(traceReadRest):
		return true
	}
}

// Of returns the backtrace of a hold and its first own frame; empty when they were not fetched or not recorded.
func (s *Backtraces) Of(r *locks.Row) Backtrace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[hold{r.Name, r.Token}]
}

// Version changes with what the list shows of the backtraces.
func (s *Backtraces) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Parse parses a backtrace; it returns nil for an empty one.
func (s *Backtraces) Parse(text string) *stacktrace.Trace { return s.reader.Parse(text) }

// FirstFrame is the first frame of own code in a backtrace, in one line; empty when there is none.
func (s *Backtraces) FirstFrame(text string) string {
	if trace := s.reader.Parse(text); trace != nil && trace.First != nil {
		return trace.First.Short()
	}
	return ""
}

// keep stores a backtrace, and reports whether there is room for more.
func (s *Backtraces) keep(key hold, text string) bool {
	k := Backtrace{Text: text, First: s.FirstFrame(text)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = k
	s.count(key, k, 1)
	return s.bytes <= maxTraces
}
