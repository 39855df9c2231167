// Package backtraces fetches ahead where in the code those locks were taken that need a person.
package backtraces

import (
	"context"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Store are the backtraces of locks that need a person. They are not in the picture, because all of them would fill
// the memory; these few are fetched ahead, so that the list can name the line of code and the page of a lock has it
// when etcd is away.
type Store struct {
	document func(ctx context.Context, lock string) (metadata.Document, int64, error)
	reader   stacktrace.Reader

	mu      sync.Mutex
	kept    map[hold]Backtrace
	bytes   int
	version uint64 // changes with what the list shows of them
}

func NewStore(document func(context.Context, string) (metadata.Document, int64, error),
	reader stacktrace.Reader) *Store {
	return &Store{document: document, reader: reader, kept: map[hold]Backtrace{}}
}

// hold names one.
type hold struct {
	name  string
	token int64
}

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
func (t *Store) Fetch(ctx context.Context, s *locks.Snapshot) {
	wanted := map[hold]bool{}
	var missing []*locks.Row
	for _, r := range s.InOrder(locks.Order{By: locks.MostUrgent}) {
		if r.Display == locks.Held {
			break
		}
		key := hold{r.Name, r.Token}
		if wanted[key] = true; !t.has(key) {
			missing = append(missing, r)
		}
	}
	t.drop(wanted)
	for _, r := range missing {
		if t.full() || !t.fetchOne(ctx, r) {
			return
		}
	}
}

// fetchOne reads one backtrace; false says that there is no use in going on.
func (t *Store) fetchOne(ctx context.Context, r *locks.Row) bool {
	reading, cancel := context.WithTimeout(ctx, etcdread.Timeout)
	defer cancel()
	document, _, err := t.document(reading, r.Name)
	if err != nil {
		return false
	}
	if document.Token == r.Token {
		t.keep(hold{r.Name, r.Token}, document.Backtrace, t.reader.Read(document.Backtrace))
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(traceReadRest):
		return true
	}
}

func (t *Store) has(key hold) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.kept[key]
	return ok
}

func (t *Store) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes > maxTraces
}

// Of returns the backtrace of a hold and its first own frame; empty when they were not fetched or not recorded.
func (t *Store) Of(r *locks.Row) Backtrace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[hold{r.Name, r.Token}]
}

func (t *Store) Version() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

func (t *Store) keep(key hold, text string, parsed *stacktrace.Trace) {
	k := Backtrace{Text: text}
	if parsed != nil && parsed.First != nil {
		k.First = parsed.First.Short()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept[key] = k
	t.bytes += len(text) + len(key.name)
	if k.First != "" {
		t.version += locks.Hash(xxhash.Sum64String(key.name), uint64(key.token)) // a sum: the same in every replica
	}
}

// drop forgets what is not wanted any more.
func (t *Store) drop(wanted map[hold]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, k := range t.kept {
		if !wanted[key] {
			delete(t.kept, key)
			if t.bytes -= len(k.Text) + len(key.name); k.First != "" {
				t.version -= locks.Hash(xxhash.Sum64String(key.name), uint64(key.token))
			}
		}
	}
}
