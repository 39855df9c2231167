// Package etcdlocks follows the locks that other libraries made in etcd: those of etcd's Go client and of its lock
// service, elections, and single keys with a lease. It only reads, and claims nothing that a watch cannot know.
package etcdlocks

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source is how etcd is read: by a lockstore.Store.
type Source interface {
	ListPrefix(ctx context.Context, prefix string, revision int64, each func(protocol.KV)) (int64, error)
	Watch(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error
	ReadLease(ctx context.Context, lease int64) (protocol.Lease, error)
}

// View follows the locks below some prefixes. Its methods are safe for concurrent use and never wait for etcd. Their
// results are shared: never modify them.
type View struct {
	own      protocol.Layout
	source   Source
	onEnded  func(*locks.Row, *metadata.Ending)
	log      zerolog.Logger
	prefixes []string // without those below another: two watches of a key may disagree

	mu       sync.Mutex
	problems map[string]string        // why the locks below a prefix are not current
	keys     map[string]*contender    // by key
	queues   map[string][]*contender  // by what they contend for, the holder first
	leases   map[int64]protocol.Lease // of the holders
	rows     []*locks.Row             // nil when out of date
}

// New returns a view that is empty until Run has read the keys; it leaves out those of our own locks. onEnded is called
// for every hold whose end was seen, without a cause if that is unknown; it must not block, nor call the view.
func New(prefixes []string, own protocol.Layout, s Source, onEnded func(*locks.Row, *metadata.Ending),
	log zerolog.Logger) *View {
	v := &View{own: own, source: s, onEnded: onEnded, problems: map[string]string{},
		keys: map[string]*contender{}, queues: map[string][]*contender{}, log: log}
	for _, prefix := range slices.Sorted(slices.Values(prefixes)) {
		if n := len(v.prefixes); n > 0 && strings.HasPrefix(prefix, v.prefixes[n-1]) {
			continue
		}
		v.prefixes = append(v.prefixes, prefix)
		v.problems[prefix] = "The locks below " + text.Visible(prefix) + " are not read yet."
	}
	return v
}

// Problems returns why locks are not current, a sentence for each prefix.
func (v *View) Problems() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Values(v.problems))
}

// Run follows the locks until ctx ends, then returns nil.
func (v *View) Run(ctx context.Context) error {
	var following sync.WaitGroup
	for _, prefix := range v.prefixes {
		following.Go(func() { v.follow(ctx, prefix) })
	}
	for ctx.Err() == nil {
		v.readLeases(ctx)
		etcdretry.Sleep(ctx, time.Second)
	}
	following.Wait()
	return nil
}

// follow lists a prefix again after a failure, and now and then, because etcd servers have lost events before.
func (v *View) follow(ctx context.Context, prefix string) {
	for ctx.Err() == nil {
		pass, cancel := context.WithTimeout(ctx, 5*time.Minute)
		revision, err := v.list(pass, prefix)
		if err == nil {
			err = v.source.Watch(pass, prefix, revision, func(_ int64, events []protocol.Event) {
				v.apply(events, time.Now())
			})
		}
		if pass.Err() == nil {
			problem := "The locks below " + text.Visible(prefix) + " are not current: " + etcdconn.Explain(err) + "."
			v.mu.Lock()
			if v.problems[prefix] != problem {
				v.log.Warn().Msg(problem)
			}
			v.problems[prefix] = problem
			v.mu.Unlock()
			etcdretry.Sleep(pass, 2*time.Second)
		}
		cancel()
	}
}

// Load returns the locks below some prefixes as they are now, with some of their leases.
func Load(ctx context.Context, prefixes []string, own protocol.Layout, s Source) ([]*locks.Row, error) {
	v := New(prefixes, own, s, func(*locks.Row, *metadata.Ending) {}, zerolog.Nop())
	for _, prefix := range v.prefixes {
		if _, err := v.list(ctx, prefix); err != nil {
			return nil, err
		}
	}
	v.readLeases(ctx)
	return v.Rows(), ctx.Err()
}

// list reads all keys below a prefix, and returns etcd's revision.
func (v *View) list(ctx context.Context, prefix string) (int64, error) {
	changes := map[string]protocol.Event{}
	revision, err := v.source.ListPrefix(ctx, prefix, 0, func(kv protocol.KV) {
		if c := v.contender(kv, time.Time{}); c != nil && len(changes) < maxKeys {
			changes[kv.Key] = protocol.Event{KV: c.KV}
		}
	})
	if err != nil {
		return 0, err
	}
	v.mu.Lock()
	delete(v.problems, prefix)
	for key := range v.keys {
		if _, listed := changes[key]; !listed && strings.HasPrefix(key, prefix) {
			changes[key] = protocol.Event{KV: protocol.KV{Key: key}}
		}
	}
	v.mu.Unlock()
	v.apply(slices.Collect(maps.Values(changes)), time.Time{})
	return revision, nil
}

// apply applies changes of one revision or list; began is when they happened, zero if that was not watched.
func (v *View) apply(changes []protocol.Event, began time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// The last in a queue leaves first: who leaves together with the holder has never held the lock.
	leaving := slices.SortedFunc(slices.Values(changes), func(a, b protocol.Event) int {
		return compare(cmp.Or(v.keys[b.Key], &contender{}), cmp.Or(v.keys[a.Key], &contender{}))
	})
	for _, e := range leaving {
		v.rows = nil
		before, after := v.keys[e.Key], v.contender(e.KV, began)
		if before != nil && after != nil && before.place == after.place && compare(before, after) == 0 {
			before.KV = after.KV // perhaps with another value
			continue
		}
		if before != nil {
			v.remove(before, began)
		}
		if after != nil && len(v.keys) < maxKeys {
			queue := v.queues[after.place]
			i, _ := slices.BinarySearchFunc(queue, after, compare)
			v.queues[after.place] = slices.Insert(queue, i, after)
			v.keys[e.Key] = after
		}
	}
}

// remove removes a contender. If it held the lock, the next one holds it from now on.
func (v *View) remove(c *contender, began time.Time) {
	queue := v.queues[c.place]
	if queue[0] == c {
		now := time.Now()
		row := v.row(queue)
		v.onEnded(row, new(lockrecord.NewEnding(row.Record, howEnded(&row.Leased.Lease, now), "", "", now)))
		if len(queue) > 1 {
			queue[1].began = began
			queue[1].seen = now
		}
	}
	v.queues[c.place] = slices.DeleteFunc(queue, func(other *contender) bool { return other == c })
	if len(queue) == 1 {
		delete(v.queues, c.place)
	}
	delete(v.keys, c.Key)
}

// Rows returns the locks. It is the same slice until one changes.
func (v *View) Rows() []*locks.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.rows == nil {
		for _, place := range slices.Sorted(maps.Keys(v.queues)) {
			v.rows = append(v.rows, v.row(v.queues[place]))
		}
	}
	return v.rows
}

const (
	maxKeys  = 50_000                // more are left out: a list of them takes a quarter of a second
	maxBytes = metadata.MaxTextBytes // of a value that are kept; a longer key is left out
	// Reading a lease costs etcd a request, so with more holders, each lease is read less often.
	maxReads = 200 // at once
	manyKeys = 1000
	slack    = time.Second // etcd counts whole seconds, and ends leases a little late
)

// contender is a key with a lease: it holds a lock, or waits for it.
type contender struct {
	protocol.KV
	// place is what the key contends for. Contenders for a lock have its name and a slash as their prefix, and their
	// lease as the last part. Any other key may be a lock or a registration: its place is the key and a zero byte.
	place string
	began time.Time // when it came to where it is, to hold the lock or to wait; zero = before that was watched
	seen  time.Time // when it was first seen there
}

// contender returns the contender that a key is; nil for none.
func (v *View) contender(kv protocol.KV, began time.Time) *contender {
	if kv.Lease == 0 || len(kv.Key) > maxBytes || v.own.Parse(kv.Key).Kind != protocol.KindForeign {
		return nil
	}
	kv.Value = []byte(text.Cut(string(kv.Value[:min(len(kv.Value), maxBytes+utf8.UTFMax)]), maxBytes))
	if !utf8.Valid(kv.Value) { // as of libraries whose values are binary
		kv.Value = nil
	}
	c := &contender{KV: kv, place: kv.Key + "\x00", began: began, seen: time.Now()}
	if kv.IsContender() {
		c.place = kv.Key[:strings.LastIndexByte(kv.Key, '/')+1]
	}
	return c
}

// compare orders the contenders for a lock by their create revision: the first one holds it.
func compare(a, b *contender) int {
	return cmp.Or(cmp.Compare(a.CreateRevision, b.CreateRevision), strings.Compare(a.Key, b.Key))
}

// row returns the lock for which a queue contends.
func (v *View) row(queue []*contender) *locks.Row {
	c := queue[0]
	r := &metadata.Record{Name: c.place[:len(c.place)-1], Token: c.CreateRevision, LockedAt: c.began, SeenAt: c.seen}
	r.Owner = string(c.Value)
	l := &locks.Leased{Key: c.Key, Lease: v.leases[c.Lease]}
	l.Lease.ID = c.Lease
	for _, w := range queue[1:] {
		waiter := metadata.Waiter{Name: r.Name, ID: strconv.FormatInt(w.Lease, 16), Revision: w.CreateRevision}
		waiter.Owner = string(w.Value)
		l.Waiters = append(l.Waiters, waiter)
	}
	return locks.NewLeasedRow(r, l)
}

// readLeases reads the leases of holders that are due, at most maxReads, in any order, and forgets all others.
func (v *View) readLeases(ctx context.Context) {
	leases := map[int64]protocol.Lease{}
	v.mu.Lock()
	for _, queue := range v.queues {
		leases[queue[0].Lease] = v.leases[queue[0].Lease]
	}
	v.leases = leases
	v.mu.Unlock()
	reads := 0
	for id, l := range leases {
		every := min(10*time.Second, max(time.Second, l.TTL/4)) // often enough to tell a release from an end
		if l.TTL == 0 || l.Keys > manyKeys {
			every = time.Minute // it could not be read, or that is costly
		}
		if reads == maxReads || time.Since(l.ReadAt) < every {
			continue
		}
		reads++
		l, err := v.source.ReadLease(ctx, id)
		l.ReadAt = time.Now()
		l.Why = etcdconn.Explain(err)
		v.mu.Lock()
		leases[id] = l
		v.rows = nil
		v.mu.Unlock()
	}
}

// howEnded returns how a hold ended whose key is gone at a time: before the end of its lease, it was released. If the
// lease was not read lately, it may have been kept alive since, and the answer is empty.
func howEnded(l *protocol.Lease, at time.Time) string {
	switch {
	case at.Before(l.Expires.Add(-slack)):
		return metadata.EndingReleased
	case !l.Expires.IsZero() && at.Sub(l.ReadAt) <= max(l.TTL/2, 2*slack):
		return metadata.EndingLeaseEnded
	}
	return ""
}
