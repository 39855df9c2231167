// Package etcdlocks follows the locks that other libraries made in etcd: those of etcd's Go client and of its lock
// service, elections, and single keys with a lease. It only reads, and claims nothing that a watch cannot know.
package etcdlocks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source is how etcd is read: by a lockstore.Store.
type Source interface {
	ListPrefix(ctx context.Context, prefix string, revision int64, each func(protocol.KV)) (int64, error)
	WatchPrefix(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error
	ReadLease(ctx context.Context, lease int64) (protocol.Lease, error)
}

// View follows the locks below some prefixes. Its methods are safe for concurrent use and never wait for etcd. Their
// results are shared: never modify them.
type View struct {
	own      protocol.Layout
	source   Source
	onEnded  func(*locks.Leased, *metadata.Ending)
	prefixes []string

	mu       sync.Mutex
	problems map[string]string // why the locks below a prefix are not current
	places   map[string]place  // by key
	queues   map[place]*queue
	leases   map[int64]locks.Lease // of the holders
	locks    []*locks.Leased       // nil when out of date
}

// queue has the contenders for a lock.
type queue struct {
	contenders map[string]*contender // by key
	holder     *contender            // of the least create revision
	seen       time.Time             // when it was first seen to hold the lock
	since      time.Time             // when it was seen to take the lock; zero = before it was watched
}

// New returns a view that is empty until Run or Load has read the keys. It leaves out the keys of our own locks.
// onEnded is called for every hold whose end was seen. An ending without a cause is of an unknown one.
func New(prefixes []string, own protocol.Layout, s Source, onEnded func(*locks.Leased, *metadata.Ending)) *View {
	v := &View{own: own, source: s, onEnded: onEnded, prefixes: prefixes, problems: map[string]string{},
		places: map[string]place{}, queues: map[place]*queue{}, leases: map[int64]locks.Lease{}}
	for _, prefix := range prefixes {
		v.setProblem(prefix, "the first list is not done")
	}
	return v
}

func (v *View) setProblem(prefix, cause string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.problems[prefix] = fmt.Sprintf("The locks below %s are not current: %s.", text.Visible(prefix), cause)
}

// Problems returns why locks are not current, a sentence for each prefix.
func (v *View) Problems() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Values(v.problems))
}

// How often a prefix is listed again after a failure, and otherwise, because etcd servers have lost events before.
const (
	retryAfter  = 2 * time.Second
	relistEvery = 5 * time.Minute
)

// Run follows the locks until ctx ends, then returns nil.
func (v *View) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, prefix := range v.prefixes {
		running.Go(func() { v.follow(ctx, prefix) })
	}
	running.Go(func() { v.readLeases(ctx) })
	running.Wait()
	return nil
}

func (v *View) follow(ctx context.Context, prefix string) {
	for ctx.Err() == nil {
		pass, cancel := context.WithTimeout(ctx, relistEvery)
		revision, err := v.list(pass, prefix)
		if err == nil {
			err = v.source.WatchPrefix(pass, prefix, revision, v.watched)
		}
		isOver := pass.Err() != nil
		cancel()
		if isOver {
			continue
		}
		v.setProblem(prefix, etcdconn.Explain(err))
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter/2 + rand.N(retryAfter)):
		}
	}
}

// Load reads the locks once, and the leases of at most maxOnce holders.
func (v *View) Load(ctx context.Context) error {
	for _, prefix := range v.prefixes {
		if _, err := v.list(ctx, prefix); err != nil {
			return err
		}
	}
	v.readDue(ctx, maxOnce)
	return ctx.Err()
}

// list reads all keys below a prefix, and returns etcd's revision.
func (v *View) list(ctx context.Context, prefix string) (int64, error) {
	listed := map[string]*contender{}
	revision, err := v.source.ListPrefix(ctx, prefix, 0, func(kv protocol.KV) {
		if c := v.contender(kv); c != nil && len(listed) < maxKeys {
			listed[kv.Key] = c
		}
	})
	if err != nil {
		return 0, err
	}
	v.mu.Lock()
	delete(v.problems, prefix)
	for key := range v.places {
		if strings.HasPrefix(key, prefix) && listed[key] == nil {
			listed[key] = nil // it is gone
		}
	}
	v.mu.Unlock()
	v.apply(listed, false)
	return revision, nil
}

func (v *View) watched(_ int64, events []protocol.Event) {
	changed := map[string]*contender{}
	for _, e := range events {
		changed[e.Key] = v.contender(e.KV) // nil for a deleted one, which has no lease
	}
	v.apply(changed, true)
}

// apply applies changes of one revision, by key; nil is a key that no longer contends for a lock. watched reports
// whether they happened just now.
func (v *View) apply(changed map[string]*contender, watched bool) {
	now := time.Now()
	v.mu.Lock()
	touched := map[place]bool{}
	for key, c := range changed {
		if at, known := v.places[key]; known {
			delete(v.places, key)
			delete(v.queues[at].contenders, key)
			touched[at] = true
		}
		if c == nil || len(v.places) >= maxKeys {
			continue
		}
		if v.queues[c.place] == nil {
			v.queues[c.place] = &queue{contenders: map[string]*contender{}}
		}
		v.places[key] = c.place
		v.queues[c.place].contenders[key] = c
		touched[c.place] = true
	}
	var ended []*locks.Leased
	for at := range touched {
		if l := v.settle(at, watched, now); l != nil {
			ended = append(ended, l)
		}
	}
	v.locks = nil
	v.mu.Unlock()
	for _, l := range ended {
		v.onEnded(l, new(lockrecord.NewEnding(l.Record(), howEnded(&l.Lease, now), "", "", now)))
	}
}

// settle notes who holds a lock whose contenders have changed, and returns the hold that has ended, if one has. The
// caller holds mu.
func (v *View) settle(at place, watched bool, now time.Time) (ended *locks.Leased) {
	q := v.queues[at]
	var first *contender
	for _, c := range q.contenders {
		if first == nil || c.Revision < first.Revision {
			first = c
		}
	}
	if first == nil {
		delete(v.queues, at)
	}
	was := q.holder
	if was != nil && (first == nil || was.Revision != first.Revision) {
		ended = v.leased(q)
	}
	if was == nil || ended != nil {
		q.seen = now
		q.since = time.Time{}
		if watched {
			q.since = now
		}
	}
	q.holder = first // perhaps with another value
	return ended
}

// Locks returns the locks by name. It is the same slice until one changes.
func (v *View) Locks() []*locks.Leased {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.locks == nil {
		v.locks = []*locks.Leased{}
		for _, q := range v.queues {
			v.locks = append(v.locks, v.leased(q))
		}
		slices.SortFunc(v.locks, func(a, b *locks.Leased) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
		})
	}
	return v.locks
}

// leased returns a lock with its holder and its waiters. The caller holds mu.
func (v *View) leased(q *queue) *locks.Leased {
	h := q.holder
	l := &locks.Leased{Name: h.Name, Single: h.single, Key: h.key, Value: h.Owner, Token: h.Revision, Since: q.since,
		Seen: q.seen, Lease: v.leases[h.lease]}
	l.Lease.ID = h.lease
	for key, c := range q.contenders {
		if key != h.key {
			l.Waiters = append(l.Waiters, c.Waiter)
		}
	}
	slices.SortFunc(l.Waiters, func(a, b metadata.Waiter) int { return cmp.Compare(a.Revision, b.Revision) })
	return l
}
