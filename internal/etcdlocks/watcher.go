package etcdlocks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source is how etcd is read: methods of a lockstore.Store.
type Source struct {
	List  func(ctx context.Context, prefix string, revision int64, each func(protocol.KV)) (int64, error)
	Watch func(ctx context.Context, prefix string, after int64,
		each func(revision int64, events []protocol.Event)) error
	Lease   func(ctx context.Context, lease int64) (protocol.Lease, error)
	Explain func(error) string
}

// Options are the optional settings of a Watcher.
type Options struct {
	// OnEnded is called for every hold whose end was watched. The cause of the ending is empty if it is not known.
	OnEnded func(*locks.Leased, *metadata.Ending)
	Log     zerolog.Logger
}

// Watcher follows the locks below some prefixes. Its methods are safe for concurrent use and never wait for etcd. Their
// results are shared: never modify them.
type Watcher struct {
	prefixes []string
	own      protocol.Layout
	source   Source
	opt      Options

	mu       sync.Mutex
	keys     map[string]*key
	queues   map[string]*queue
	leases   map[int64]*lease
	leftOut  map[string]int // keys that are not shown, by prefix
	problems map[string]string
	locks    []*locks.Leased // nil when out of date
	changed  chan struct{}
}

// New returns a watcher that is empty until Run or Load has listed the keys. It leaves out the keys of our own locks.
func New(prefixes []string, own protocol.Layout, s Source, o Options) *Watcher {
	if o.OnEnded == nil {
		o.OnEnded = func(*locks.Leased, *metadata.Ending) {}
	}
	return &Watcher{prefixes: outermost(prefixes), own: own, source: s, opt: o, keys: map[string]*key{},
		queues: map[string]*queue{}, leases: map[int64]*lease{}, leftOut: map[string]int{},
		problems: map[string]string{}, changed: make(chan struct{})}
}

// outermost returns the prefixes that are not below another one.
func outermost(prefixes []string) (kept []string) {
	for _, p := range slices.Sorted(slices.Values(prefixes)) {
		if p != "" && (len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1])) {
			kept = append(kept, p)
		}
	}
	return kept
}

// Locks returns the locks by name. It is the same slice until one changes.
func (w *Watcher) Locks() []*locks.Leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locks == nil {
		w.locks = make([]*locks.Leased, 0, len(w.queues))
		for _, id := range slices.Sorted(maps.Keys(w.queues)) {
			q := w.queues[id]
			w.locks = append(w.locks, q.leased(w.leases[q.keys[0].lease]))
		}
		slices.SortStableFunc(w.locks, func(a, b *locks.Leased) int { return strings.Compare(a.Name, b.Name) })
	}
	return w.locks
}

// Problems returns why locks are missing, in sentences.
func (w *Watcher) Problems() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, prefix := range w.prefixes {
		if why := w.problems[prefix]; why != "" {
			all = append(all, fmt.Sprintf("the locks below %s are not current: %s", prefix, why))
		}
		if n := w.leftOut[prefix]; n > 0 {
			all = append(all, fmt.Sprintf("%d keys below %s are too many or too long to show", n, prefix))
		}
	}
	return all
}

// Changed returns a channel that is closed at the next change.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// change drops what is out of date. The caller holds mu.
func (w *Watcher) change() {
	w.locks = nil
	close(w.changed)
	w.changed = make(chan struct{})
}

// Run follows the locks until ctx ends, then returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, prefix := range w.prefixes {
		running.Go(func() { w.follow(ctx, prefix) })
	}
	running.Go(func() { w.readLeases(ctx) })
	running.Wait()
	return nil
}

// Load reads the locks once, and the leases of at most maxOnce holders.
func (w *Watcher) Load(ctx context.Context) error {
	for _, prefix := range w.prefixes {
		if _, err := w.list(ctx, prefix); err != nil {
			return err
		}
	}
	w.readDue(ctx, maxOnce)
	return ctx.Err()
}

// retry is how long to wait before a prefix is listed again.
const retry = 2 * time.Second

func (w *Watcher) follow(ctx context.Context, prefix string) {
	for {
		revision, err := w.list(ctx, prefix)
		if err == nil {
			err = w.source.Watch(ctx, prefix, revision, func(_ int64, events []protocol.Event) {
				w.apply(prefix, events)
			})
		}
		if ctx.Err() != nil {
			return
		}
		w.note(prefix, w.source.Explain(err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// note keeps why a prefix cannot be followed, and logs it if it is news.
func (w *Watcher) note(prefix, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problems[prefix] == why {
		return
	}
	w.problems[prefix] = why
	w.change()
	if why != "" {
		w.opt.Log.Warn().Str("prefix", prefix).Str("error", why).Msg("locks of other libraries cannot be followed")
	}
}

// list makes what is known of a prefix match etcd.
func (w *Watcher) list(ctx context.Context, prefix string) (int64, error) {
	now := time.Now()
	listed := map[string]*key{}
	leftOut := 0
	revision, err := w.source.List(ctx, prefix, 0, func(kv protocol.KV) {
		k, ok := w.decode(kv)
		switch {
		case ok && len(listed) < maxKeys:
			k.seen = now
			listed[k.name] = &k
		case ok || len(kv.Key) > maxName:
			leftOut++
		}
	})
	if err != nil {
		return 0, err
	}
	w.note(prefix, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leftOut[prefix] = leftOut
	for name, k := range w.keys {
		if strings.HasPrefix(name, prefix) && listed[name] == nil {
			w.remove(k, now, false)
		}
	}
	for _, k := range slices.SortedFunc(maps.Values(listed), order) {
		w.put(k)
	}
	w.change()
	return revision, nil
}

func (w *Watcher) decode(kv protocol.KV) (key, bool) {
	if w.own.Parse(kv.Key).Kind != protocol.KindForeign {
		return key{}, false
	}
	return decode(kv)
}

// put adds a key, or what is new of a known one. The caller holds mu.
func (w *Watcher) put(k *key) {
	if known := w.keys[k.name]; known != nil {
		if known.created != k.created || known.lock != k.lock {
			w.remove(known, k.seen, k.watched)
		} else {
			k.seen, k.watched = known.seen, known.watched
		}
	}
	w.keys[k.name] = k
	id := k.id()
	if w.queues[id] == nil {
		w.queues[id] = &queue{}
	}
	w.queues[id].put(k)
}

// remove removes a key. The caller holds mu.
func (w *Watcher) remove(k *key, at time.Time, watched bool) {
	delete(w.keys, k.name)
	q := w.queues[k.id()]
	q.remove(k, at, watched)
	if len(q.keys) == 0 {
		delete(w.queues, k.id())
	}
}

// apply applies the events of one revision.
func (w *Watcher) apply(prefix string, events []protocol.Event) {
	if len(events) == 0 {
		return
	}
	now := time.Now()
	var ended []*locks.Leased
	var endings []metadata.Ending
	w.mu.Lock()
	for _, e := range events {
		known := w.keys[e.Key]
		k, ok := w.decode(e.KV)
		switch {
		case !e.Deleted && ok && (known != nil || len(w.keys) < maxKeys):
			k.seen = now
			k.watched = e.CreateRevision == e.ModRevision
			w.put(&k)
		case !e.Deleted && ok:
			w.leftOut[prefix]++
		case known != nil: // deleted, or without its lease
			if q := w.queues[known.id()]; q.keys[0] == known {
				l := w.leases[known.lease]
				lock := q.leased(l)
				ended = append(ended, lock)
				endings = append(endings, lockrecord.NewEnding(lock.Record(), l.howEnded(now), "", "", now))
			}
			w.remove(known, now, true)
		}
	}
	w.change()
	w.mu.Unlock()
	for i, l := range ended {
		w.opt.OnEnded(l, &endings[i])
	}
}

// id tells the queue of a key from a single key of the same name.
func (k *key) id() string {
	if k.single {
		return k.lock
	}
	return k.lock + "/"
}

// byAge sorts leases by when they were read.
func byAge(a, b *lease) int { return cmp.Compare(a.read.UnixNano(), b.read.UnixNano()) }
