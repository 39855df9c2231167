package dashboard

import (
	"github.com/cespare/xxhash/v2"

	"context"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/stacktrace"
)

// traces are the backtraces of locks that need a person. They are not in the picture, because all of them would fill
// the memory; these few are fetched ahead, so that the list can name the line of code and the page of a lock has it
// when etcd is away.
type traces struct {
	mu      sync.Mutex
	kept    map[traceKey]kept
	bytes   int
	version uint64 // changes with what the list shows of them
}

// traceKey names a hold.
type traceKey struct {
	name  string
	token int64
}

type kept struct {
	text  string
	first string // the first frame of own code, in one line
}

const (
	tracesEvery   = 3 * time.Second
	traceReadRest = 20 * time.Millisecond // between two reads, so that a big incident does not become one of etcd
	maxTraces     = 32 << 20              // bytes kept
)

// Run fetches what pages may need ahead of them, and sends notices of force unlocks, until ctx ends. The pages work
// without it.
func (d *Dashboard) Run(ctx context.Context) error {
	var notifying sync.WaitGroup
	notifying.Go(func() { d.notify(ctx) })
	defer notifying.Wait()
	for {
		now := d.Config.Now()
		fresh := d.Config.Fresh()
		d.History.Observe(now, fresh)
		if !d.Config.HideBacktraces && fresh.Level(now) == locks.Live {
			d.fetchTraces(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tracesEvery):
		}
	}
}

// fetchTraces reads the backtraces that are wanted and not there, most urgent locks first, and drops those that are not
// wanted.
func (d *Dashboard) fetchTraces(ctx context.Context) {
	s := d.SnapshotAt(d.Config.Now(), d.Config.Clock(), d.Config.Fresh())
	wanted := map[traceKey]bool{}
	var missing []*locks.Row
	for _, r := range s.InOrder(locks.Order{By: locks.MostUrgent}) {
		if r.Display == locks.Held {
			break
		}
		key := traceKey{r.Name, r.Token}
		if wanted[key] = true; !d.traces.has(key) {
			missing = append(missing, r)
		}
	}
	d.traces.drop(wanted)
	for _, r := range missing {
		if d.traces.full() || !d.fetchTrace(ctx, r) {
			return
		}
	}
}

// fetchTrace reads one backtrace; false says that there is no use in going on.
func (d *Dashboard) fetchTrace(ctx context.Context, r *locks.Row) bool {
	reading, cancel := context.WithTimeout(ctx, etcdread.Timeout)
	defer cancel()
	document, _, err := d.Config.Document(reading, r.Name)
	if err != nil {
		return false
	}
	if document.Token == r.Token {
		d.traces.keep(traceKey{r.Name, r.Token}, document.Backtrace, d.reader.Read(document.Backtrace))
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(traceReadRest):
		return true
	}
}

func (t *traces) has(key traceKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.kept[key]
	return ok
}

func (t *traces) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes > maxTraces
}

// of returns the backtrace of a hold and its first own frame; empty when they were not fetched or not recorded.
func (t *traces) of(r *locks.Row) kept {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[traceKey{r.Name, r.Token}]
}

func (t *traces) current() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

func (t *traces) keep(key traceKey, text string, parsed *stacktrace.Trace) {
	k := kept{text: text}
	if parsed != nil && parsed.First != nil {
		k.first = parsed.First.Short()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		t.kept = map[traceKey]kept{}
	}
	t.kept[key] = k
	t.bytes += len(text) + len(key.name)
	if k.first != "" {
		t.version += locks.Hash(xxhash.Sum64String(key.name), uint64(key.token)) // a sum: the same in every replica
	}
}

// drop forgets what is not wanted any more.
func (t *traces) drop(wanted map[traceKey]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, k := range t.kept {
		if !wanted[key] {
			delete(t.kept, key)
			if t.bytes -= len(k.text) + len(key.name); k.first != "" {
				t.version -= locks.Hash(xxhash.Sum64String(key.name), uint64(key.token))
			}
		}
	}
}
