package etcdread

import (
	"context"
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
	wanted := map[hold]bool{}
	var missing []*locks.Row
	for _, r := range snapshot.InOrder(locks.Order{By: locks.MostUrgent}) {
		if r.Display == locks.Held {
			break
		}
		key := hold{r.Name, r.Token}
		if wanted[key] = true; !s.has(key) {
			missing = append(missing, r)
		}
	}
	s.drop(wanted)
	for _, r := range missing {
		if s.full() || !s.fetchOne(ctx, r) {
			return
		}
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
	if document.Token == r.Token {
		s.keep(hold{r.Name, r.Token}, document.Backtrace)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(traceReadRest):
		return true
	}
}

func (s *Backtraces) has(key hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.kept[key]
	return ok
}

func (s *Backtraces) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes > maxTraces
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

func (s *Backtraces) keep(key hold, text string) {
	k := Backtrace{Text: text, First: s.FirstFrame(text)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = k
	s.bytes += len(text) + len(key.name)
	if k.First != "" {
		s.version += locks.Hash(xxhash.Sum64String(key.name), uint64(key.token)) // a sum: the same in every replica
	}
}

// drop forgets what is not wanted any more.
func (s *Backtraces) drop(wanted map[hold]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, k := range s.kept {
		if !wanted[key] {
			delete(s.kept, key)
			if s.bytes -= len(k.Text) + len(key.name); k.First != "" {
				s.version -= locks.Hash(xxhash.Sum64String(key.name), uint64(key.token))
			}
		}
	}
}
