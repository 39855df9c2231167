package sweeper_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// store stands in for etcd. Its guards are those of the protocol's auto-unlock transaction.
type store struct {
	mu       sync.Mutex
	revision int64
	term     uint64
	down     bool // answers nothing
	readOnly bool // refuses puts, as etcd does without space
	delay    time.Duration
	locks    map[string]metadata.Record
	presence map[string]metadata.Presence
	arrived  map[string]time.Time
	removed  map[string][]time.Time // by lock: when
	endings  map[string]metadata.Ending
	delays   map[string]time.Duration // that followed removals
	commits  [][]string
	tries    map[string]int
	broken   map[string]error            // locks whose removal fails
	onRemove func()                      // runs between a sweeper's decision and its commit
	hang     func(context.Context) error // delays announcements
	nodes    []*node
}

func newStore() *store {
	return &store{
		revision: 100, term: 2, locks: map[string]metadata.Record{}, presence: map[string]metadata.Presence{},
		arrived: map[string]time.Time{},
		removed: map[string][]time.Time{}, endings: map[string]metadata.Ending{}, broken: map[string]error{},
		tries: map[string]int{}, delays: map[string]time.Duration{},
	}
}

// simulated wraps a test with a store in a synctest bubble.
func simulated(test func(t *testing.T, s *store)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newStore()) }) }
}

func simulate(t *testing.T, test func(t *testing.T, s *store)) { simulated(test)(t) }

var (
	errDown    = errors.New("context deadline exceeded")
	errNoSpace = errors.New("etcdserver: mvcc: database space exceeded")
)

// set changes the store under its mutex and shows the change to every connected view.
func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	if !s.down {
		for _, n := range s.nodes {
			n.see()
		}
	}
}

func (s *store) stop()    { s.set(func() { s.down = true }) }
func (s *store) recover() { s.set(func() { s.down, s.readOnly = false, false }) }

// take writes a lock whose holder's clock is right, with an alert and an auto-unlock after these times.
func (s *store) take(name string, alertAfter, unlockAfter time.Duration, change ...func(*metadata.Record)) {
	now := time.Now().Round(0)
	s.set(func() {
		s.revision++
		r := metadata.Record{
			Name: name, UUID: fmt.Sprintf("4be0643f-1d98-573b-97cd-%012d", s.revision),
			Identity: metadata.Identity{Owner: "billing", Hostname: "pod-1", PID: 42, Purpose: "test"},
			LockedAt: now, AlertAt: now.Add(alertAfter), AutoUnlockAt: now.Add(unlockAfter),
			Token: s.revision, Revision: s.revision, DeadlineRevision: s.revision,
		}
		for _, c := range change {
			c(&r)
		}
		s.locks[name] = r
	})
}

// alive moves the deadlines, as the protocol's alive does. It returns false for a definite "lost".
func (s *store) alive(name string, token int64, clock time.Time, ttl time.Duration) (held bool, err error) {
	s.set(func() {
		r, ok := s.locks[name]
		switch {
		case s.down:
			err = errDown
		case s.readOnly:
			err = errNoSpace
		case !ok || r.Token != token:
		default:
			held = true
			if deadline := clock.Add(ttl); r.AutoUnlockAt.Before(deadline) {
				s.revision++
				r.AlertAt = clock
				r.AutoUnlockAt = deadline
				r.Alive = &metadata.Alive{At: clock, Revision: s.revision}
				r.Revision = s.revision
				r.DeadlineRevision = s.revision
				s.locks[name] = r
			}
		}
	})
	return held, err
}

// state states that the holder of the lock has ended.
func (s *store) state(name string) {
	s.set(func() {
		s.revision++
		r := s.locks[name]
		code := 137
		st := metadata.Statement{
			Name: name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseContainerEnded, ExitCode: &code,
			Detail: "OOMKilled", Reason: "the kubelet says so", Witness: metadata.WitnessKubernetes, By: "w-1",
			EndedAt: metadata.Time{Time: time.Now().Add(-40 * time.Second)}, Revision: s.revision,
		}
		lockrecord.AttachStatements(&r, &st, nil)
		s.locks[name] = r
	})
	for _, n := range s.nodes {
		if n.watches {
			n.HolderDied()
		}
	}
}

func (s *store) release(name string) { s.set(func() { s.revision++; delete(s.locks, name) }) }

func (s *store) remove(ctx context.Context, removals []lockrecord.Removal) []error {
	if s.onRemove != nil {
		s.onRemove()
	}
	time.Sleep(s.delay)
	errs := make([]error, len(removals))
	if ctx.Err() != nil {
		for i := range errs {
			errs[i] = ctx.Err()
		}
		return errs
	}
	s.set(func() {
		names := make([]string, len(removals))
		for i, r := range removals {
			names[i] = r.Record.Name
			errs[i] = s.removeOne(r)
		}
		s.commits = append(s.commits, names)
	})
	return errs
}

func (s *store) removeOne(r lockrecord.Removal) error {
	s.tries[r.Record.Name]++
	now, held := s.locks[r.Record.Name]
	switch {
	case s.down:
		return errDown
	case s.readOnly:
		return errNoSpace
	case s.broken[r.Record.Name] != nil:
		return s.broken[r.Record.Name]
	case !held || now.Token != r.Record.Token || now.DeadlineRevision != r.Record.DeadlineRevision:
		return metadata.ErrChanged
	case r.Ending.Cause == metadata.EndingAbandoned &&
		(now.Death == nil || now.Death.Revision != r.Record.Death.Revision):
		return metadata.ErrChanged
	}
	s.revision++
	delete(s.locks, r.Record.Name)
	s.removed[r.Record.Name] = append(s.removed[r.Record.Name], time.Now())
	s.endings[r.Record.Name] = r.Ending
	s.delays[r.Record.Name] = r.Delay
	return nil
}

func (s *store) announce(ctx context.Context, p metadata.Presence) (revision int64, term uint64, _ error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		if err := hang(ctx); err != nil {
			return 0, 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return 0, 0, errDown
	case s.readOnly:
		return 0, 0, errNoSpace
	}
	s.revision++
	s.presence[p.ID], s.arrived[p.ID] = p, time.Now()
	for _, n := range s.nodes {
		n.hear()
	}
	return s.revision, s.term, nil
}

// node is one unlocker: a view, two clocks and a sweeper.
type node struct {
	*sweeper.Sweeper
	store   *store
	id      string
	started time.Time
	records map[string]*metadata.Record
	current int64
	heard   time.Time
	watches bool // it is told of deaths at once
	stale   *protocol.Freshness

	ahead  atomic.Int64 // of its wall clock, in nanoseconds
	logged proctest.Log
	stop   context.CancelFunc
	done   chan struct{}
}

// see brings the view up to date; the store's mutex is held.
func (n *node) see() {
	records := make(map[string]*metadata.Record, len(n.store.locks))
	for name, r := range n.store.locks {
		old := n.records[name]
		if old != nil && old.Token == r.Token && old.Revision == r.Revision && r.Death == nil {
			records[name] = old
			continue
		}
		switch {
		case old == nil || old.Token != r.Token:
			r.Seen = metadata.Seen{First: n.clock(), Changed: n.clock()}
		case old.Revision != r.Revision:
			r.Seen = metadata.Seen{First: old.Seen.First, Changed: n.clock()}
		default:
			r.Seen = old.Seen
		}
		if r.Death != nil {
			death := *r.Death
			death.Seen = n.clock()
			if old != nil && old.Death != nil && old.Death.Revision == death.Revision {
				death.Seen = old.Death.Seen
			}
			r.Death = &death
		}
		records[name] = &r
	}
	n.records = records
	n.hear()
}

// hear is for what changes no lock.
func (n *node) hear() {
	n.current = n.store.revision
	n.heard = time.Now()
}

func (n *node) clock() time.Duration { return time.Since(n.started) }

func (n *node) wall() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) }

func (n *node) jump(d time.Duration) { n.ahead.Add(int64(d)) }

// locks iterates over the records by name, reusing one record.
func (n *node) locks() iter.Seq[*metadata.Record] {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	records := slices.SortedFunc(maps.Values(n.records),
		func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	return func(yield func(*metadata.Record) bool) {
		var one metadata.Record
		for _, r := range records {
			if one = *r; !yield(&one) {
				return
			}
		}
		one = metadata.Record{}
	}
}

// lock returns a new copy each time.
func (n *node) lock(name string) *metadata.Record {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	r := n.records[name]
	if r == nil {
		return nil
	}
	copied := *r
	return &copied
}

func (n *node) fresh() protocol.Freshness {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if n.stale != nil {
		return *n.stale
	}
	if !n.store.down {
		n.hear()
	}
	return protocol.Freshness{Synced: true, HeardAt: n.heard, Revision: n.current}
}

func (n *node) peers() []metadata.Presence {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	var peers []metadata.Presence
	for id, p := range n.store.presence {
		if at := n.store.arrived[id]; time.Since(at) < 15*time.Second {
			p.ArrivedAt = at
			peers = append(peers, p)
		}
	}
	return peers
}

// log returns the lines with this message so far.
func (n *node) log(message string) []map[string]any {
	var found []map[string]any
	for line := range strings.Lines(n.logged.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// must checks the status.
func (n *node) must(t *testing.T, is func(sweeper.Status) bool) {
	t.Helper()
	if s := n.Status(); !is(s) {
		t.Errorf("status %+v; removed %v", s, n.store.removed)
	}
}

// mustLog expects this message n times, the last time with these fields: name, value and so on.
func (n *node) mustLog(t *testing.T, times int, message string, fields ...any) {
	t.Helper()
	lines := n.log(message)
	if len(lines) != times {
		t.Errorf("%q is logged %d times, want %d: %v", message, len(lines), times, lines)
		return
	}
	for i := 0; i < len(fields); i += 2 {
		if last := lines[times-1]; last[fields[i].(string)] != fields[i+1] {
			t.Errorf("%q is logged with %v, want %v", message, last, fields)
		}
	}
}

// config is auto-unlock with the defaults, the clock verified by a member of etcd.
func (n *node) config() sweeper.Config {
	c := sweeper.DefaultConfig()
	c.ID, c.Hostname = n.id, "host"
	c.Version, c.Mode = "test", sweeper.AutoUnlock
	c.Locks, c.Lock = n.locks, n.lock
	c.Clock, c.Now = n.clock, n.wall
	c.Fresh = n.fresh
	c.Log = zerolog.New(&n.logged)
	c.Announce, c.Remove = n.store.announce, n.store.remove
	c.Peers = func() []metadata.Presence { return nil }
	c.Queues = func() map[string][]metadata.Waiter { return nil }
	c.Offsets = func(context.Context) []time.Duration {
		return []time.Duration{time.Until(n.wall())*-1 + time.Millisecond}
	}
	return c
}

// join starts an unlocker on the store.
func (s *store) join(t *testing.T, change ...func(*node, *sweeper.Config)) *node {
	t.Helper()
	n := &node{store: s, started: time.Now(), done: make(chan struct{})}
	s.mu.Lock()
	n.id = fmt.Sprintf("unlocker-%d", len(s.nodes)+1)
	s.nodes = append(s.nodes, n)
	n.see()
	s.mu.Unlock()
	cfg := n.config()
	for _, c := range change {
		c(n, &cfg)
	}
	var err error
	if n.Sweeper, err = sweeper.New(cfg); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(t.Context())
	go func() {
		defer close(n.done)
		if err := n.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { n.leave() })
	return n
}

func (n *node) leave() { n.stop(); <-n.done }

// unlocksAbandoned unlocks abandoned locks after this grace.
func unlocksAbandoned(grace time.Duration) func(*node, *sweeper.Config) {
	return func(n *node, c *sweeper.Config) {
		n.watches = true
		c.Policy.UnlockAbandoned = true
		c.Policy.AbandonedGrace = grace
	}
}

func withoutMembers(_ *node, c *sweeper.Config) {
	c.Offsets = func(context.Context) []time.Duration { return nil }
}
func withPeers(n *node, c *sweeper.Config) { c.Peers = n.peers }
func ahead(d time.Duration) func(*node, *sweeper.Config) {
	return func(n *node, _ *sweeper.Config) { n.jump(d) }
}

// wait lets time pass and everything due happen. The mutex orders the test before and after the sweepers' actions,
// because all their calls take it.
func (s *store) wait(d time.Duration) {
	s.set(func() {})
	time.Sleep(d)
	synctest.Wait()
	s.set(func() {})
}

func (s *store) removals(name string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.removed[name])
}

func (s *store) mustHave(t *testing.T, name string) {
	t.Helper()
	if at := s.removals(name); len(at) > 0 {
		t.Errorf("%s was removed at %v, now is %v", name, at, time.Now())
	}
}

// mustBeRemovedOnceAt checks the moment to the millisecond.
func (s *store) mustBeRemovedOnceAt(t *testing.T, name string, at time.Time) {
	t.Helper()
	got := s.removals(name)
	if len(got) != 1 || got[0].Sub(at).Abs() > time.Millisecond {
		t.Errorf("%s: removed at %v, want once at %v", name, got, at)
	}
}

// mustGo expects a lock to be removed once, this long after a moment.
func (s *store) mustGo(t *testing.T, name string, since time.Time, least, most time.Duration) {
	t.Helper()
	if at := s.removals(name); len(at) != 1 || at[0].Sub(since) < least || at[0].Sub(since) > most {
		t.Errorf("%s: removed at %v, want %v to %v after %v", name, at, least, most, since)
	}
}

func (s *store) mustGoOnce(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		s.mustGo(t, name, time.Time{}, 0, staleness.Never)
	}
}
