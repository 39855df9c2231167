package route_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/route"
)

const (
	atA       = "routes: [{segment: s, cluster: a}]"
	moveToB   = "routes: [{segment: s, cluster: b, from: a, move: 1}]"
	atB       = "routes: [{segment: s, cluster: b, move: 1}]"
	backToA   = "routes: [{segment: s, cluster: a, from: b, move: 2}]"
	againToB  = "routes: [{segment: s, cluster: b, from: a, move: 3}]"
	mayFall   = ", tokens-may-fall: true}]"
	shortWait = 300 * time.Millisecond
)

// world is two etcds, and clients with tables of their own.
type world struct {
	t    testing.TB
	a, b *clientv3.Client
}

func newWorld(t testing.TB) *world {
	w := &world{t, etcdtest.Start(t).Client(t), etcdtest.Start(t).Client(t)}
	w.raise(w.b, 200)
	return w
}

// raise raises the revision of an etcd.
func (w *world) raise(etcd *clientv3.Client, by int) {
	for range by {
		etcdtest.Put(w.t, etcd, "other", "")
	}
}

func (w *world) plain(etcd *clientv3.Client, owner string) *mutex.Client {
	c, err := mutex.New(etcd, mutex.Options{Owner: owner})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c
}

// process is a client with a file of its own.
type process struct {
	*route.Client
	t    testing.TB
	file string
}

func (w *world) process(table string) *process {
	p := &process{t: w.t, file: filepath.Join(w.t.TempDir(), "routes.yaml")}
	p.write(table)
	clusters := map[string]*mutex.Client{"a": w.plain(w.a, "one"), "b": w.plain(w.b, "two")}
	c, err := route.New(route.File(p.file), clusters, route.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	p.Client = c
	w.t.Cleanup(c.Close)
	return p
}

// write writes the file, as tools that replace files do.
func (p *process) write(table string) {
	if err := os.WriteFile(p.file+".new", []byte(table), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) reads(table string) {
	p.t.Helper()
	p.write(table)
	if err := p.Reload(context.Background()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) take(name string, opts ...mutex.Option) *mutex.Lock {
	p.t.Helper()
	l, err := p.TryLock(context.Background(), name, opts...)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

func unlock(t testing.TB, l *mutex.Lock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) holds(etcd *clientv3.Client, lock string) bool {
	return etcdtest.Count(w.t, etcd, "/mutexes/"+strings.ReplaceAll(lock, "/", "%2F")+"/uuid") > 0
}

func TestLocksAreTakenWhereTheTableSays(t *testing.T) {
	w := newWorld(t)
	p := w.process("{default: {cluster: a}, routes: [{segment: s, cluster: b}]}")
	one, two := p.take("s/1"), p.take("t/1")
	if w.holds(w.a, "s/1") || !w.holds(w.b, "s/1") || !w.holds(w.a, "t/1") || w.holds(w.b, "t/1") {
		t.Error("a lock is in the wrong cluster")
	}
	unlock(t, one)
	unlock(t, two)
	if _, err := p.TryLockAll(context.Background(), []string{"s/1", "t/1"}); err == nil ||
		!strings.Contains(err.Error(), "different clusters, b and a") {
		t.Errorf("locks of two clusters together: %v", err)
	}
	err := p.Do(context.Background(), "s/1", func(ctx context.Context) error {
		if l := mutex.FromContext(ctx); l == nil || !w.holds(w.b, "s/1") {
			t.Error("Do does not hold the lock in its cluster")
		}
		return nil
	})
	if err != nil || w.holds(w.b, "s/1") {
		t.Errorf("after Do: %v", err)
	}
	p = w.process("routes: [{segment: s, cluster: b}]")
	if _, err := p.TryLock(context.Background(), "u/1"); !errors.Is(err, route.ErrNoRoute) {
		t.Errorf("a segment without a route: %v", err)
	}
}

func TestTableThatCannotBeUsedLeavesTheLastInForce(t *testing.T) {
	w := newWorld(t)
	p := w.process(atA)
	for text, want := range map[string]string{
		"routes: [{segment: s}]":             `the table of routes: the route of "s" names no cluster`,
		"routes: [{segment: s, cluster: c}]": `the route of "s" names the cluster "c", there are a, b`,
		"routes: [{segment: s, cluster: b}]": `goes from "a" to "b" without a move`,
	} {
		p.write(text)
		if err := p.Reload(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if p.Err() == nil || p.Table().Routes[0].Cluster != "a" {
			t.Errorf("%s: the table is %+v, Err is %v", text, p.Table(), p.Err())
		}
	}
	p.reads(moveToB)
	if p.Err() != nil {
		t.Errorf("after a table that can be used: %v", p.Err())
	}
	p.write(atA)
	if err := p.Reload(context.Background()); err == nil || !strings.Contains(err.Error(), "older table") {
		t.Errorf("the table from before the move: %v", err)
	}
	if _, err := route.New(route.File("/nowhere/routes.yaml"), nil, route.Options{}); err == nil ||
		!strings.Contains(err.Error(), "/nowhere/routes.yaml") {
		t.Errorf("no file: %v", err)
	}
}

// The one with the old table works on, the one with the new table gets the lock after it, and then the old table is no
// use any more.
func TestLockThatMovesHasOneHolder(t *testing.T) {
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint("wait ", wait), func(t *testing.T) {
			w := newWorld(t)
			old, updated := w.process(atA), w.process(moveToB)
			held := old.take("s/1")
			var refused *mutex.HeldError
			if _, err := updated.TryLock(context.Background(), "s/1"); !errors.As(err, &refused) ||
				refused.Holder.Token != held.Token() {
				t.Fatalf("while the lock is held in the old cluster: %v", err)
			}
			if wait {
				time.AfterFunc(shortWait, func() { _ = held.Unlock() })
			} else {
				unlock(t, held)
			}
			l, err := updated.Lock(context.Background(), "s/1")
			if err != nil {
				t.Fatal(err)
			}
			if l.Token() <= held.Token() {
				t.Errorf("the tokens are %d in the old cluster, then %d", held.Token(), l.Token())
			}
			var moved *route.MovedError
			if _, err := old.TryLock(context.Background(), "s/1"); !errors.As(err, &moved) || moved.Cluster != "b" ||
				moved.Move != 1 {
				t.Errorf("by the old table: %v", err)
			}
			if _, err := w.plain(w.a, "unaware").TryLock(context.Background(), "s/1"); !errors.As(err, &refused) ||
				refused.Holder.Purpose != "moved to cluster b, by move 1" {
				t.Errorf("without a table: %v", err)
			}
			old.write(moveToB) // it finds that itself
			if _, err := old.TryLock(context.Background(), "s/1"); !errors.As(err, &refused) ||
				refused.Holder.Token != l.Token() {
				t.Errorf("by a table that has just changed: %v", err)
			}
			unlock(t, l)
			unlock(t, old.take("s/1"))
		})
	}
}

// A waiter finds out that its lock has moved, by its table or by the claim, and goes on in the new cluster.
func TestWaitersFollowTheLock(t *testing.T) {
	w := newWorld(t)
	old := w.process(atA)
	held := old.take("s/1")
	got := make(chan error)
	var waiters []*process
	for range 4 {
		p := w.process(atA)
		waiters = append(waiters, p)
		go func() { got <- p.Do(context.Background(), "s/1", func(context.Context) error { return nil }) }()
	}
	etcdtest.Eventually(t, "all wait", func() bool {
		return etcdtest.Count(t, w.a, "/mutexes/.queue/s%2F1/") == int64(len(waiters))+1
	})
	for _, p := range waiters[1:] {
		p.write(moveToB)
	}
	etcdtest.Eventually(t, "the others wait to claim the lock", func() bool {
		return waiters[3].Table().Routes[0].Move == 1 && waiters[2].Table().Routes[0].Move == 1 &&
			waiters[1].Table().Routes[0].Move == 1
	})
	unlock(t, held)
	waiters[0].write(moveToB)
	for range waiters {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if !w.holds(w.a, "s/1") || w.holds(w.b, "s/1") {
		t.Error("the move does not hold the lock in the old cluster, or somebody does in the new one")
	}
}

// Whatever a client does last before it dies, others go on; and what it does after the segment has moved on does no
// harm.
func TestClientsThatStopAtAnyStep(t *testing.T) {
	w := newWorld(t)
	first, second := w.process(moveToB), w.process(backToA)
	third := w.process(againToB)
	name := func(step int) string { return fmt.Sprintf("s/%d", step) }
	for i := range 5 {
		unlock(t, first.take(name(i))) // claimed in a, by move 1
	}
	w.raise(w.a, 400)
	claims := func(etcd *clientv3.Client, lock string) int64 {
		return etcdtest.Count(t, etcd, "/mutexes/"+strings.ReplaceAll(lock, "/", "%2F")+"/uuid")
	}
	// Claimed in b, too, by somebody who could not go on: the lock is held in a by an earlier move, and in b by the
	// move back.
	if _, err := w.plain(w.b, "dead").TryReserve(context.Background(), name(0), "moved", time.Hour,
		mutex.Attribute(route.AttributeTo, "a"), mutex.Attribute(route.AttributeMove, 2)); err != nil {
		t.Fatal(err)
	}
	var moved *route.MovedError
	if _, err := first.TryLock(context.Background(), name(0)); !errors.As(err, &moved) || moved.Move != 2 {
		t.Errorf("by the table before the move back: %v", err)
	}
	l := second.take(name(0))
	if claims(w.b, name(0)) != 1 || !w.holds(w.a, name(0)) {
		t.Error("the move back does not hold the lock in b")
	}
	if _, err := first.TryLock(context.Background(), name(0)); err == nil {
		t.Error("two holders")
	}
	if _, err := third.TryLock(context.Background(), name(0)); !errors.Is(err, mutex.ErrHeld) {
		t.Errorf("the third move, while the second holds the lock: %v", err)
	}
	unlock(t, l)

	w.raise(w.b, 800)
	// The third move raises the claim of the first one, which nobody had removed.
	l = third.take(name(1))
	if _, err := second.TryLock(context.Background(), name(1)); !errors.Is(err, mutex.ErrHeld) {
		t.Errorf("by the table before the third move, while the lock is held: %v", err)
	}
	unlock(t, l)
	w.raise(w.a, 800)
	// The second one claims the lock in b before it finds that it is late; the third one removes that.
	if _, err := second.TryLock(context.Background(), name(1)); !errors.As(err, &moved) || moved.Move != 3 {
		t.Errorf("by the table before the third move: %v", err)
	}
	if !w.holds(w.a, name(1)) || !w.holds(w.b, name(1)) {
		t.Error("a claim is missing")
	}
	w.raise(w.b, 800)
	unlock(t, third.take(name(1)))
	unlock(t, third.take(name(0)))
}

func TestTokensDoNotFall(t *testing.T) {
	w := newWorld(t)
	w.raise(w.a, 300)
	unlock(t, w.process(atA).take("s/1"))
	p := w.process(moveToB)
	var e *route.TokenError
	_, err := p.TryLock(context.Background(), "s/1")
	if !errors.As(err, &e) || e.Revision >= e.Token || w.holds(w.b, "s/1") {
		t.Fatalf("with a new cluster that is behind: %v", err)
	}
	w.raise(w.b, 300)
	if l := p.take("s/1"); l.Token() <= e.Token {
		t.Errorf("the token is %d, that of the claim %d", l.Token(), e.Token)
	}
	w.raise(w.a, 600)
	p.reads("routes: [{segment: s, cluster: b, from: a, move: 1" + mayFall)
	unlock(t, p.take("s/2"))
}

// A claim holds all shares of a lock, and comes only when none is held.
func TestSharesMoveTogether(t *testing.T) {
	w := newWorld(t)
	old, updated := w.process(atA), w.process(moveToB)
	permit := old.take("s/pool", mutex.Semaphore(3))
	if _, err := updated.TryLock(context.Background(), "s/pool", mutex.Semaphore(3)); !errors.Is(err, mutex.ErrHeld) {
		t.Fatalf("while a permit is out in the old cluster: %v", err)
	}
	unlock(t, permit)
	one, two := updated.take("s/pool", mutex.Semaphore(3)), updated.take("s/pool", mutex.Semaphore(3))
	if _, err := old.TryLock(context.Background(), "s/pool", mutex.Semaphore(3)); err == nil {
		t.Error("the old cluster still gives permits")
	}
	unlock(t, one)
	unlock(t, two)
	together, err := updated.LockAll(context.Background(), []string{"s/x", "s/y", "s/pool"})
	if err != nil {
		t.Fatal(err)
	}
	if err := together.Unlock(); err != nil {
		t.Error(err)
	}
}

// Clients take a few locks while their segment moves there and back. Each reads the table when it likes, one never does
// and one knows of none. No lock ever has two holders.
func TestSegmentMovesBackAndForthUnderClients(t *testing.T) {
	w := newWorld(t)
	const locks, moves = 3, 6
	table := func(move int) string {
		if move == 0 {
			return atA
		}
		home, from := "b", "a"
		if move%2 == 0 {
			home, from = from, home
		}
		return fmt.Sprintf("routes: [{segment: s, cluster: %s, from: %s, move: %d%s", home, from, move, mayFall)
	}
	var holders [locks]atomic.Int32
	var taken [moves + 1]atomic.Int32
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	work := func(lock int) {
		if n := holders[lock].Add(1); n != 1 {
			t.Errorf("lock %d has %d holders", lock, n)
		}
		time.Sleep(time.Millisecond)
		holders[lock].Add(-1)
	}
	var all sync.WaitGroup
	type taker interface {
		Lock(ctx context.Context, name string, opts ...mutex.Option) (*mutex.Lock, error)
		TryLock(ctx context.Context, name string, opts ...mutex.Option) (*mutex.Lock, error)
	}
	client := func(c taker, move func() int) {
		for i := 0; ctx.Err() == nil; i++ {
			lock := i % locks
			take := c.TryLock
			if i%3 == 0 {
				take = c.Lock
			}
			before := move()
			wait, done := context.WithTimeout(ctx, 3*time.Second)
			l, err := take(wait, fmt.Sprintf("s/%d", lock))
			done()
			if err != nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			work(lock)
			taken[before].Add(1)
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}
	}
	none := func() int { return 0 }
	never := w.process(atA)
	all.Go(func() { client(never, none) })
	plain := w.plain(w.a, "unaware")
	all.Go(func() { client(plain, none) })
	var current []*process
	for range 3 {
		p := w.process(atA)
		current = append(current, p)
		all.Go(func() { client(p, func() int { return p.Table().Routes[0].Move }) })
	}
	for move := 1; move <= moves; move++ {
		for i := range current {
			p := current[(i+move)%len(current)]
			p.write(table(move)) // it reads that within a second
			if i == 0 {
				etcdtest.Eventually(t, "one client has moved", func() bool { return taken[move].Load() > 5 })
			}
		}
		etcdtest.Eventually(t, "all clients have moved", func() bool { return taken[move].Load() > 30 })
	}
	stop()
	all.Wait()
	for move := range taken {
		t.Logf("with move %d: %d holds", move, taken[move].Load())
	}
}
