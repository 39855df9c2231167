package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestAllOrNothing(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		names := []string{"c", "b", "a"}
		refused := func(err error, b *mutex.Lock) {
			t.Helper()
			if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Name != "b" ||
				held.Holder.UUID != b.UUID() {
				t.Errorf("got %v", err)
			}
			unlock(t, b)
			time.Sleep(time.Minute) // for what goes on in the background
			q.nothingLeft()
		}
		b := take(t, c, "b")
		_, err := c.TryLockAll(t.Context(), names)
		refused(err, b)
		b = take(t, c, "b")
		_, err = c.LockAll(within(t, time.Minute), names)
		refused(err, b)
		q.put(layout(t).Ticket("b", foreignUUID), "{}")
		q.put(layout(t).Tail("b"), foreignUUID)
		_, err = c.TryLockAll(t.Context(), names)
		if held, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || held.Name != "b" || held.Position != 2 {
			t.Errorf("while others queue for one of them: %v", err)
		}
		q.delete(layout(t).Ticket("b", foreignUUID)) // the tail is left behind
		g, err := c.TryLockAll(t.Context(), names)
		proctest.Must(t, err)
		unlock(t, g)
	})
}

func TestMostLocksInOneTransaction(t *testing.T) {
	etcd, locks := onEtcd(t)
	names := make([]string, mutex.MaxBatch)
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
	proctest.Must(t, err)
	if doc := read(t, etcd, names[0]); len(doc.Problems) > 0 ||
		!strings.HasSuffix(doc.Attributes[mutex.AttributeTogether].(string), "d, "+names[4]+" and 19 more") {
		t.Errorf("together with %v, %v", doc.Attributes, doc.Problems)
	}
	unlock(t, g)
	wantEmpty(t, etcd)
}

func TestAcquiredLocksStayHeldWhileWaitingForTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		b := take(t, locks, "b", mutex.AutoUnlockAfter(2*time.Hour))
		begin := time.Now()
		time.AfterFunc(time.Hour, func() {
			a := read(t, f.etcd, "a")
			if a.Token == 0 || !a.AutoUnlockAt.After(time.Now()) || a.AlertAt.Sub(begin) > 2*time.Minute {
				t.Errorf("after an hour of waiting the first lock is auto-unlocked in %v, the alert was put off by %v",
					time.Until(a.AutoUnlockAt), a.AlertAt.Sub(begin))
			}
			if a.Alive == nil || a.Alive.Progress != `waits for lock "b"` {
				t.Errorf("people see %+v", a.Alive)
			}
			b.Unlock()
		})
		g := takeAll(t, locks, []string{"b", "a"}, mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(3*time.Minute))
		if tokens := g.Tokens(); tokens["a"] >= tokens["b"] {
			t.Errorf("the first lock was taken twice: %v", tokens)
		}
		for name := range g.Tokens() {
			if d := time.Until(read(t, f.etcd, name).AlertAt); d != time.Minute {
				t.Errorf("when all were there, people were to be alerted of %s in %v", name, d)
			}
		}
	})
}

func TestLossOfOneLockEndsTheWaitForTheNext(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		take(t, q.locks(), "b")
		time.AfterFunc(2*time.Second, func() { q.delete(layout(t).Record("a")) })
		_, err := q.locks().LockAll(t.Context(), []string{"a", "b"})
		if lost, isLost := errors.AsType[*mutex.LostError](err); !isLost || lost.Name != "a" {
			t.Errorf("got %v", err)
		}
	})
}

// The answer to the acquisition is lost, and one of the locks is removed before the client can ask again.
func TestGroupLosesOneLockBeforeALostAnswer(t *testing.T) {
	type removal struct {
		lock    string
		another bool // has it then
		forced  bool
	}
	bubbles(t, map[string]removal{
		"the first, by hand":            {lock: "a"},
		"the last, by hand":             {lock: "b"},
		"the last, by a person":         {lock: "b", forced: true},
		"the first, and another has it": {lock: "a", another: true},
		"the last, and another has it":  {lock: "b", another: true},
	}, func(t *testing.T, f *fake, locks *mutex.Client, c removal) {
		f.loseAnswers.Store(1)
		var taken metadata.FullRecord
		time.AfterFunc(time.Second, func() {
			if taken = read(t, f.etcd, c.lock); c.forced {
				f.put(layout(t).History(taken.UUID), protocol.Marshal(lockrecord.NewEnding(&taken.Record,
					metadata.EndingForced, "ann", "stuck", time.Now())))
			}
			f.delete(layout(t).Record(c.lock))
			if c.another {
				f.put(layout(t).Field(c.lock, lockrecord.FieldUUID), "another")
			}
		})
		_, err := locks.TryLockAll(t.Context(), []string{"a", "b"})
		why, isLost := errors.AsType[*mutex.LostError](err)
		if !isLost || why.Name != c.lock || why.UUID != taken.UUID || c.forced != (why.Ending != nil) {
			t.Errorf("the error is %v", err)
		}
		time.Sleep(time.Minute)
		other := map[string]string{"a": "b", "b": "a"}[c.lock]
		if held := read(t, f.etcd, other); held.Token != 0 {
			t.Errorf("%s is still held", other)
		}
		if now := read(t, f.etcd, c.lock).UUID; (now != "") != c.another {
			t.Errorf("%s is held as %q", c.lock, now)
		}
	})
}

func TestResentRequestForSeveralLocksYieldsTheSameHolds(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := newClient(t, onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if txn.writes("/mutexes/a/uuid") {
				r, err = txn.send(ctx)
			}
			return r, err
		}))
		both, err := c.TryLockAll(t.Context(), []string{"a", "b"})
		proctest.Must(t, err)
		if now := read(t, q.etcd, "b"); both.Tokens()["b"] != now.Token {
			t.Errorf("it holds b with token %d, etcd has %d", both.Tokens()["b"], now.Token)
		}
		unlock(t, both)
	})
}
