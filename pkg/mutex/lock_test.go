package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	before := time.Now()
	l := take(t, locks, "billing/42", mutex.Purpose("monthly invoices"), mutex.AlertAfter(time.Minute),
		mutex.AutoUnlockAfter(5*time.Minute), mutex.Attribute("ticket", "OPS-1"), mutex.Attribute("rows", 7))

	doc := read(t, etcd, "billing/42")
	if len(doc.Problems) > 0 {
		t.Errorf("the record has problems: %v", doc.Problems)
	}
	for _, c := range []struct{ what, got, want string }{
		{"uuid", doc.UUID, l.UUID()}, {"owner", doc.Owner, "billing"}, {"hostname", doc.Hostname, "host-1"},
		{"purpose", doc.Purpose, "monthly invoices"}, {"ticket", doc.Attributes["ticket"].(string), "OPS-1"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.what, c.got, c.want)
		}
	}
	if doc.Token != l.Token() {
		t.Errorf("the token is %d, want the create revision %d", l.Token(), doc.Token)
	}
	if d := doc.LockedAt.Sub(before).Abs(); d > time.Minute {
		t.Errorf("locked_at is off by %v", d)
	}
	if d := doc.AlertAt.Sub(doc.LockedAt); d != time.Minute {
		t.Errorf("people are alerted after %v", d)
	}
	if d := doc.AutoUnlockAt.Sub(doc.LockedAt); d != 5*time.Minute {
		t.Errorf("auto-unlocked after %v", d)
	}
	newest, _, _ := strings.Cut(doc.Backtrace, "\n")
	if !strings.Contains(newest, "/helpers_test.go:") ||
		!strings.HasSuffix(newest, " in github.com/clustermutex/unlocker/pkg/mutex_test.take") {
		t.Errorf("the newest frame is %q, want the caller of Lock", newest)
	}
	unlock(t, l)
	wantEmpty(t, etcd)
}

func TestTryLockTellsWhoHoldsIt(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	l := take(t, locks, "a", mutex.Owner("report"), mutex.Purpose("close the books"),
		mutex.AlertAfter(10*time.Minute+time.Second), mutex.AutoUnlockAfter(2*time.Hour+time.Minute))
	defer l.Unlock()

	_, err := locks.TryLock(context.Background(), "a")
	held, ok := errors.AsType[*mutex.HeldError](err)
	if !ok || !errors.Is(err, mutex.ErrHeld) {
		t.Fatalf("want a HeldError, got %v", err)
	}
	if held.Holder.UUID != l.UUID() || held.Holder.Token != l.Token() || held.Holder.Owner != "report" {
		t.Errorf("the holder is %+v", held.Holder.Record)
	}
	for _, part := range []string{`lock "a" is held by report on host-1 (pid `,
		`, taken just now for "close the books"`,
		"alert in 10 minutes, auto-unlock in 2 hours"} {
		if !strings.Contains(justNow(err.Error()), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestLockEndsWithItsContext(t *testing.T) {
	for name, o := range map[string]mutex.Option{"in the queue": nil, "past it": mutex.WithoutQueue()} {
		t.Run(name, func(t *testing.T) {
			lineInABubble(t, func(t *testing.T, q *line) {
				l := take(t, q.client(), "a")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := q.client().Lock(ctx, "a", o)
				if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != l.UUID() {
					t.Errorf("want the holder, got %v", err)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(),
					`context deadline exceeded: lock "a" is held by billing on host-1`) {
					t.Errorf("want the context's error too, got %v", err)
				}
				if d := time.Since(began); d != time.Minute {
					t.Errorf("it ended after %v", d)
				}
				unlock(t, l)
			})
		})
	}
}

func TestReleaseWakesTheWaiter(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	watches := spyOnWatches(etcd)
	locks := newClient(t, etcd)
	first := take(t, locks, "a")
	got := waits(t, locks)
	<-watches
	select {
	case <-got:
		t.Fatal("two hold the lock")
	default:
	}
	unlock(t, first)
	second := <-got
	if second.Token() <= first.Token() {
		t.Errorf("the tokens %d and %d do not grow", first.Token(), second.Token())
	}
	unlock(t, second)
}

func TestHostileRecord(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	for field, value := range map[string]string{
		"uuid": "x\x00\xff", "owner": "\x1b[31mroot\n\u202e", "hostname": strings.Repeat("h", 1<<20), "pid": "-1",
		"locked_at": "soon",
		"alert_at":  "NaN", "auto_unlock_at": "9999999999", "metadata": "[1,", "purpose": "\"\n<script>",
	} {
		etcdtest.Put(t, etcd, "/mutexes/a/"+field, value)
	}
	etcdtest.Put(t, etcd, "/mutexes/a/b/uuid", "nothing of this protocol")
	_, err := locks.TryLock(context.Background(), "a")
	if _, ok := errors.AsType[*mutex.HeldError](err); !ok {
		t.Fatalf("want a HeldError, got %v", err)
	}
	line := err.Error()
	if len(line) > 1000 || strings.ContainsAny(line, "\n\x1b\u202e\x00\xff") {
		t.Errorf("not a harmless line: %q", line)
	}
	if !strings.Contains(line, "no readable alert time") {
		t.Errorf("%s", line)
	}
}

func TestUnlockTwice(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	l := take(t, locks, "a")
	for range 2 {
		unlock(t, l)
	}
	if cause := context.Cause(l.Context()); cause != mutex.ErrUnlocked {
		t.Errorf("the context ended with %v", cause)
	}
	if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
		t.Errorf("alive after unlock: %v", err)
	}
	select {
	case <-l.Lost():
		t.Error("an unlocked lock is not a lost one")
	default:
	}
}

func TestUnlockIgnoresTheEndOfTheCallersContext(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	ctx, cancel := context.WithCancel(context.Background())
	err := locks.Do(ctx, "a", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || err.Error() != "context canceled" {
		t.Errorf("want the error of the function alone, got %v", err)
	}
	wantEmpty(t, etcd)
}

func TestDoUnlocksWhenTheFunctionPanics(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
		wantEmpty(t, etcd)
	}()
	locks.Do(context.Background(), "a", func(context.Context) error { panic("out of cheese") })
}

func TestGuardRefusesAWriteAfterTheHold(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	l := take(t, locks, "a")
	write := func() bool {
		r, err := etcd.Txn(context.Background()).If(l.Guard()).Then(clientv3.OpPut("/data", "x")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r.Succeeded
	}
	if !write() {
		t.Error("the holder's write was refused")
	}
	l.Unlock()
	if write() {
		t.Error("a write after the end of the hold was accepted")
	}
	again := take(t, locks, "a")
	defer again.Unlock()
	if write() {
		t.Error("a write under the guard of an older hold was accepted")
	}
}

func TestNamesThatLookLikePathsDoNotMeet(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	var held []*mutex.Lock
	for _, name := range []string{"a", "a/b", "ab", ".a", "%2F", "a%2Fb", "ä/日本"} {
		held = append(held, take(t, locks, name))
	}
	if err := held[0].Unlock(); err != nil {
		t.Fatal(err)
	}
	for _, l := range held[1:] {
		if err := l.Alive(context.Background()); err != nil {
			t.Errorf("%q: %v", l.Name(), err)
		}
		if err := l.Unlock(); err != nil {
			t.Errorf("%q: %v", l.Name(), err)
		}
	}
}

func TestClosedClientTakesNoLocks(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	watches := spyOnWatches(etcd)
	locks := newClient(t, etcd)
	l := take(t, locks, "a")
	waiter := make(chan error)
	go func() {
		_, err := locks.Lock(context.Background(), "a")
		waiter <- err
	}()
	<-watches
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiter; !errors.Is(err, mutex.ErrClosed) {
		t.Errorf("the waiter got %v", err)
	}
	if _, err := locks.Lock(context.Background(), "b"); !errors.Is(err, mutex.ErrClosed) {
		t.Errorf("lock after close: %v", err)
	}
	<-l.Context().Done()
	if cause := context.Cause(l.Context()); cause != mutex.ErrClosed {
		t.Errorf("the hold's context ended with %v", cause)
	}
	if read(t, etcd, "a").UUID != l.UUID() {
		t.Error("close gave back a lock that nobody unlocked")
	}
	if err := l.Unlock(); err != nil {
		t.Errorf("unlock after close: %v", err)
	}
}

// The range of a record belongs to the lock: its holder deletes all of it, foreign keys included.
func TestGivingBackLeavesNothingInTheRangeOfTheRecord(t *testing.T) {
	for name, giveBack := range map[string]func(*mutex.Lock) error{
		"unlock":      (*mutex.Lock).Unlock,
		"unlock with": func(l *mutex.Lock) error { return l.UnlockWith(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Shared(t).Client(t)
			l := take(t, newClient(t, etcd), "a")
			neighbour := take(t, newClient(t, etcd), "a/b")
			for _, key := range []string{"/mutexes/a/b/uuid", "/mutexes/a/UPPER", "/mutexes/a/note"} {
				etcdtest.Put(t, etcd, key, "somebody's")
			}
			if err := giveBack(l); err != nil {
				t.Error(err)
			}
			r, err := etcd.Get(context.Background(), "/mutexes/a/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || r.Count != 0 {
				t.Errorf("%d keys are left, %v", r.Count, err)
			}
			if err := neighbour.Unlock(); err != nil {
				t.Errorf("the neighbour: %v", err)
			}
		})
	}
}

func TestAHolderWithAHeartbeatIsNotSaidToAlertSoon(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	locks := newClient(t, etcd)
	l := take(t, locks, "a", mutex.Owner("search"), mutex.Heartbeat(6*time.Hour), mutex.AutoUnlockAfter(5*time.Minute),
		mutex.AlertAfter(2*time.Hour))
	defer l.Unlock()

	_, err := locks.TryLock(context.Background(), "a")
	if want := "; unless extended, it alerts and is auto-unlocked in 5 minutes"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%q does not contain %q", err, want)
	}
}
