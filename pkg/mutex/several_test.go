package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		for name, takeAll := range map[string]func(context.Context, []string, ...mutex.Option) (*mutex.Locks, error){
			"TryLockAll": c.TryLockAll, "LockAll": c.LockAll,
		} {
			b := take(t, c, "b")
			ctx := untilThen(t, func() bool { return queued(q.etcd, layout(q), "b") })
			if name == "TryLockAll" {
				ctx = t.Context()
			}
			_, err := takeAll(ctx, []string{"c", "b", "a"})
			held, isHeld := errors.AsType[*mutex.HeldError](err)
			if !isHeld || held.Lock != "b" || held.Holder.UUID != b.UUID() {
				t.Errorf("%s: %v", name, err)
			}
			unlock(t, b)
			etcdtest.Eventually(t, "nothing left", func() bool {
				return withoutTombstones(t, q.etcd) == 0 // giving up while a request is under way leaves one
			})
		}
		q.put(layout(t).Ticket("b", foreignUUID), "{}")
		q.put(layout(t).Tail("b"), foreignUUID)
		_, err := c.TryLockAll(t.Context(), []string{"a", "b"})
		if held, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || held.Lock != "b" || held.Position != 2 {
			t.Errorf("while others queue for one of them: %v", err)
		}
		q.delete(layout(t).Ticket("b", foreignUUID)) // the tail is left behind
		g, err := c.TryLockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, g)
	})
}

func TestThe24LocksThatFitIntoOneTransaction(t *testing.T) {
	etcd, locks := onEtcd(t)
	names := make([]string, mutex.MaxTogether)
	for i := range names {
		names[i] = strings.Repeat(string(rune('a'+i)), 250)
		etcdtest.Put(t, etcd, layout(t).Tail(names[i]), "x") // the end of a queue of the dead
	}
	writes := make([]clientv3.Op, 7)
	for i := range writes {
		writes[i] = clientv3.OpPut(fmt.Sprint("/x", i), "")
	}
	g, err := locks.TryLockAll(t.Context(), names, mutex.Then(writes...),
		mutex.If(clientv3.Compare(clientv3.Version("/y"), "=", 0)))
	if err != nil {
		t.Fatal(err)
	}
	if doc := read(t, etcd, names[0]); len(doc.Problems) > 0 ||
		!strings.HasSuffix(doc.Attributes[mutex.AttributeTogether].(string), "d, "+names[4]+" and 19 more") {
		t.Errorf("together with %v, %v", doc.Attributes, doc.Problems)
	}
	if err := g.Unlock(); err != nil || etcdtest.Count(t, etcd, mutex.DefaultPrefix) != 0 {
		t.Errorf("unlock: %v, %d keys are left", err, etcdtest.Count(t, etcd, mutex.DefaultPrefix))
	}
}

func TestLocksThatAreThereStayHeldWhileTheNextIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		b := take(t, locks, "b", mutex.AutoUnlockAfter(2*time.Hour))
		begin := time.Now()
		got := make(chan *mutex.Locks)
		go func() {
			g, err := locks.LockAll(context.Background(), []string{"b", "a"}, mutex.AlertAfter(time.Minute),
				mutex.AutoUnlockAfter(3*time.Minute))
			if err != nil {
				t.Error(err)
			}
			got <- g
		}()
		time.Sleep(time.Hour)
		a := read(t, f.etcd, "a")
		if a.Token == 0 || !a.AutoUnlockAt.After(time.Now()) {
			t.Errorf("after an hour of waiting the first lock is auto-unlocked at %v, it is %v", a.AutoUnlockAt,
				time.Now())
		}
		if d := a.AlertAt.Sub(begin); d > 2*time.Minute {
			t.Errorf("the alert was put off by %v", d)
		}
		if a.Alive == nil || a.Alive.Progress != `waits for lock "b"` {
			t.Errorf("people see %+v", a.Alive)
		}
		b.Unlock()
		g := <-got
		if g == nil {
			return
		}
		if g.Tokens()["a"] != a.Token {
			t.Error("the first lock was taken twice")
		}
		for _, name := range g.Names() {
			if d := time.Until(read(t, f.etcd, name).AlertAt); d != time.Minute {
				t.Errorf("when all were there, people were to be alerted of %s in %v", name, d)
			}
		}
		unlock(t, g)
	})
}

func TestLossOfOneWhileTheNextIsWaitedForEndsTheWait(t *testing.T) {
	t.Parallel()
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		watches := spyOnWatches(q.etcd)
		waiting := newClient(t, q.etcd)
		b := take(t, c, "b")
		failed := make(chan error)
		go func() {
			_, err := waiting.LockAll(context.Background(), []string{"a", "b"})
			failed <- err
		}()
		for key := range watches {
			if key == "/mutexes/a/asked" {
				break
			}
		}
		q.delete("/mutexes/a/")
		err := <-failed
		if lost, isLost := errors.AsType[*mutex.LostError](err); !isLost || lost.Lock != "a" {
			t.Errorf("got %v", err)
		}
		unlock(t, b)
		etcdtest.Eventually(t, "nothing left", func() bool { return withoutTombstones(t, q.etcd) == 0 })
	})
}

// The answer to the acquisition is lost, and one of the locks is taken away before the client can ask again.
func TestGroupOfWhichOneIsTakenAwayBeforeTheAnswerIsLost(t *testing.T) {
	for _, c := range []struct {
		name, lock string
		then       []clientv3.Op // of the client that took it away
		forced     bool
	}{
		{"the first, by hand", "a", nil, false},
		{"the last, by hand", "b", nil, false},
		{"the last, by a person", "b", nil, true},
		{"the first, and another has it", "a", []clientv3.Op{clientv3.OpPut("/mutexes/a/uuid", "another")}, false},
		{"the last, and another has it", "b", []clientv3.Op{clientv3.OpPut("/mutexes/b/uuid", "another")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				f.loseAnswers.Store(1)
				lost := make(chan error)
				go func() {
					_, err := locks.TryLockAll(context.Background(), []string{"a", "b"})
					lost <- err
				}()
				synctest.Wait()
				taken := read(t, f.etcd, c.lock)
				if c.forced {
					f.put(layout(t).History(taken.UUID),
						protocol.Marshal(metadata.NewEnding(&taken.Record, metadata.EndedForced, "ann", "stuck",
							time.Now())))
				}
				f.delete(layout(t).Record(c.lock))
				f.do(c.then...)
				err := <-lost
				why, isLost := errors.AsType[*mutex.LostError](err)
				if !isLost || why.Lock != c.lock || why.UUID != taken.UUID || c.forced != (why.Ending != nil) {
					t.Errorf("the error is %v", err)
				}
				time.Sleep(time.Minute)
				other := map[string]string{"a": "b", "b": "a"}[c.lock]
				if held := read(t, f.etcd, other); held.Token != 0 {
					t.Errorf("%s is still held", other)
				}
				if now := read(t, f.etcd, c.lock).UUID; (now != "") != (c.then != nil) {
					t.Errorf("%s is held as %q", c.lock, now)
				}
			})
		})
	}
}

func TestSeveralLocksWhoseRequestIsSentTwiceAreTheSameHolds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, _ *mutex.Client) {
		etcd := f.client()
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if txn.writes("/mutexes/a/uuid") {
				r, err = txn.send(ctx)
			}
			return r, err
		}}
		both, err := newClient(t, etcd).TryLockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if now := read(t, f.etcd, "b"); both.Tokens()["b"] != now.Token {
			t.Errorf("it holds b with token %d, etcd has %d", both.Tokens()["b"], now.Token)
		}
		unlock(t, both)
	})
}
