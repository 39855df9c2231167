package lockview_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var layout = protocol.DefaultLayout()

// world is the content of a simulated etcd, with its watchers.
type world struct {
	mu       sync.Mutex
	kvs      map[string]protocol.KV
	revision int64
	told     []turn
	more     chan struct{} // closed when told grows
	deaf     bool          // what happens is not told
	cuts     chan struct{} // closed when watches are cut off
	lists    int
}

// turn is one revision.
type turn struct {
	revision int64
	events   []protocol.Event
}

func newWorld() *world {
	return &world{kvs: map[string]protocol.KV{}, revision: 1, more: make(chan struct{}), cuts: make(chan struct{})}
}

// simulated wraps a test with a world in a synctest bubble.
func simulated(test func(t *testing.T, w *world)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newWorld()) }) }
}

func simulate(t *testing.T, test func(t *testing.T, w *world)) { simulated(test)(t) }

// cut ends all watches.
func (w *world) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cuts)
	w.cuts = make(chan struct{})
}

// setDeaf stops or resumes the delivery of events to watches.
func (w *world) setDeaf(deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = deaf
}

// op is a put, or a delete of a key or of all keys with a prefix.
type op struct {
	key, value     string
	remove, prefix bool
	unleased       bool // although it is an unlocker's
}

func put(key, value string) op   { return op{key: key, value: value} }
func remove(key string) op       { return op{key: key, remove: true} }
func removeAll(prefix string) op { return op{key: prefix, remove: true, prefix: true} }

// do applies all ops in one revision.
func (w *world) do(ops ...op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []protocol.Event
	next := w.revision + 1
	for _, o := range ops {
		for _, key := range w.matching(o) {
			if o.remove {
				delete(w.kvs, key)
				events = append(events, protocol.Event{KV: protocol.KV{Key: key, ModRevision: next}, Deleted: true})
				continue
			}
			kv := protocol.KV{Key: key, Value: []byte(o.value), CreateRevision: next, ModRevision: next}
			if layout.Parse(key).Kind == protocol.KindUnlocker && !o.unleased {
				kv.Lease = 1
			}
			if old, ok := w.kvs[key]; ok {
				kv.CreateRevision = old.CreateRevision
			}
			w.kvs[key] = kv
			events = append(events, protocol.Event{KV: kv})
		}
	}
	if len(events) == 0 {
		return
	}
	w.revision = next
	events = slices.DeleteFunc(events,
		func(e protocol.Event) bool { return !strings.HasPrefix(e.Key, layout.Prefix()) })
	if !w.deaf && len(events) > 0 {
		w.told = append(w.told, turn{next, events})
	}
	close(w.more)
	w.more = make(chan struct{})
}

func (w *world) matching(o op) []string {
	if !o.remove {
		return []string{o.key}
	}
	var keys []string
	for key := range w.kvs {
		if key == o.key || o.prefix && strings.HasPrefix(key, o.key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// source is the world as a view reads it.
func (w *world) source() lockview.Source { return lockview.Source{List: w.list, Watch: w.watch} }

func (w *world) list(_ context.Context, each func(protocol.KV)) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	for _, key := range slices.Sorted(maps.Keys(w.kvs)) {
		if listed(key) {
			each(w.kvs[key])
		}
	}
	return w.revision, nil
}

func listed(key string) bool {
	for _, area := range layout.UnlistedAreas() {
		if strings.HasPrefix(key, area) {
			return false
		}
	}
	return strings.HasPrefix(key, layout.Prefix())
}

func (w *world) watch(ctx context.Context, _ string, after int64, each func(int64, []protocol.Event)) error {
	w.mu.Lock()
	cuts := w.cuts
	w.mu.Unlock()
	for next := 0; ; {
		w.mu.Lock()
		told := w.told[next:]
		more := w.more
		revision := w.revision
		w.mu.Unlock()
		next += len(told)
		for _, t := range told {
			if t.revision > after {
				each(t.revision, t.events)
			}
		}
		each(revision, nil)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cuts:
			return reason("connection")
		case <-more:
		}
	}
}

func (w *world) get(key string) (protocol.KV, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kv, ok := w.kvs[key]
	return kv, ok
}

func (w *world) now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// live lets time pass, with signs of life from etcd.
func (w *world) live(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(3*time.Second, time.Until(end))) {
		w.do(put("/other", ""))
	}
	synctest.Wait()
}

// viewed returns the view's record of a lock, or nil: a new one after every change.
func viewed(v *lockview.View, name string) *metadata.Record {
	for _, r := range v.Locks() {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// settle waits until the view shows the world as it is.
func settle(t testing.TB, v *lockview.View, w *world) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		f := v.Fresh()
		if f.Synced && f.Revision == w.now() {
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("the view does not get to revision %d: %+v", w.now(), f)
		}
	}
}

// run runs a view until the end of the test.
func run(t testing.TB, src lockview.Source, o lockview.Options) *lockview.View {
	t.Helper()
	v := lockview.New(layout, src, o)
	proctest.Go(t, v.Run)
	return v
}

// lock returns the ops with which the client library takes a lock.
func lock(t testing.TB, name, uuid string, change ...func(*lockrecord.Draft)) []op {
	t.Helper()
	d := draft(uuid)
	for _, c := range change {
		c(&d)
	}
	fields, err := d.Fields()
	proctest.Must(t, err)
	var ops []op
	for _, f := range fields {
		ops = append(ops, put(layout.Field(name, f.Name), f.Value))
	}
	return ops
}

// shown returns a view's snapshot in comparable form: without seen times, with sorted problems.
type shown struct {
	Locks     []metadata.Record
	Queues    map[string][]metadata.Waiter
	Unlockers []metadata.Presence
	Foreign   int
}

// truth returns what a view must show of the world, computed without the view's shortcuts.
func (w *world) truth() shown {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := shown{Queues: map[string][]metadata.Waiter{}}
	fields := map[string][]metadata.Field{}
	foreign := map[string][]string{}
	stated := map[protocol.Key]*metadata.Statement{}
	for _, key := range slices.Sorted(maps.Keys(w.kvs)) {
		kv := w.kvs[key]
		k := layout.Parse(key)
		switch {
		case !listed(key):
		case k.Kind == protocol.KindField:
			fields[k.Lock] = append(fields[k.Lock], metadata.Field{
				Name: k.ID, Value: string(kv.Value), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
			})
		case k.Kind == protocol.KindForeign:
			s.Foreign++
			foreign[k.Lock] = append(foreign[k.Lock], key)
		case k.Kind == protocol.KindTicket:
			t, _ := protocol.Unmarshal[metadata.Ticket](kv.Value)
			if t.Holding {
				continue
			}
			s.Queues[k.Lock] = append(s.Queues[k.Lock], metadata.Waiter{Ticket: t, Name: k.Lock, ID: k.ID,
				Revision: kv.CreateRevision})
		case k.Kind == protocol.KindUnlocker:
			if p := protocol.DecodePresence(k.ID, kv.Value, kv.Lease); p != nil {
				s.Unlockers = append(s.Unlockers, *p)
			}
		case k.Kind == protocol.KindDeath, k.Kind == protocol.KindSuspicion:
			if st, err := protocol.Unmarshal[metadata.Statement](kv.Value); err == nil && st.UUID == k.ID {
				st.Revision = kv.ModRevision
				stated[k] = &st
			}
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(fields)) {
		d := lockrecord.Decode(lock, fields[lock], foreign[lock]...)
		lockrecord.AttachStatements(&d.Record, stated[protocol.Key{Kind: protocol.KindDeath, ID: d.UUID}],
			stated[protocol.Key{Kind: protocol.KindSuspicion, ID: d.UUID}])
		s.Locks = append(s.Locks, plainly(&d.Record))
	}
	for _, queue := range s.Queues {
		slices.SortFunc(queue, func(a, b metadata.Waiter) int {
			return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.ID, b.ID))
		})
	}
	return s
}

func show(v *lockview.View) shown {
	s := shown{Queues: map[string][]metadata.Waiter{}}
	for lock, waiters := range v.Queues() {
		s.Queues[lock] = slices.Clone(waiters)
		for i := range waiters {
			s.Queues[lock][i].Seen = 0
		}
	}
	_, s.Foreign, _ = v.Foreign()
	for _, r := range v.Locks() {
		s.Locks = append(s.Locks, plainly(r))
	}
	for _, u := range v.Records() {
		u.ArrivedAt = time.Time{}
		s.Unlockers = append(s.Unlockers, u.Presence)
	}
	return s
}

// plainly also reduces foreign keys to their existence: the view counts them, Decode names them.
func plainly(r *metadata.Record) metadata.Record {
	c := *r
	c.Seen = metadata.Seen{}
	for _, of := range []**metadata.Statement{&c.Death, &c.Suspicion} {
		if *of != nil {
			unseen := **of
			unseen.Seen = 0
			*of = &unseen
		}
	}
	c.Problems = slices.DeleteFunc(slices.Clone(c.Problems),
		func(p metadata.Problem) bool { return p.Kind == metadata.ProblemUnknownLayout })
	if r.HasForeignKeys() {
		c.Problems = append(c.Problems, metadata.Problem{Kind: metadata.ProblemUnknownLayout})
	}
	if len(c.Problems) == 0 {
		c.Problems = nil
	}
	slices.SortFunc(c.Problems, func(a, b metadata.Problem) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return c
}

// differ compares two snapshots.
func differ(t testing.TB, what string, got, want shown) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
