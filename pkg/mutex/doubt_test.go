package mutex_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// stalled holds back the first transaction that takes a lock until the test sends it.
type stalled struct{ txn atomic.Pointer[heldTxn] }

func stallFirst(etcd *clientv3.Client) *stalled {
	var s stalled
	etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if s.txn.CompareAndSwap(nil, txn) {
			return nil, context.DeadlineExceeded
		}
		return txn.send(ctx)
	}}
	return &s
}

// arrive sends the transaction on to etcd.
func (s *stalled) arrive(t *testing.T) {
	t.Helper()
	if _, err := s.txn.Load().send(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestLateSendingAfterTheEndOfItsHoldIsRefused(t *testing.T) {
	etcdDel := func(t *testing.T, etcd *clientv3.Client, l *mutex.Lock) {
		if _, err := etcd.Delete(context.Background(), layout(t).Record(l.Name()), clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
	lost := func(t *testing.T, err error) {
		t.Helper()
		if _, isLost := errors.AsType[*mutex.LostError](err); !isLost {
			t.Errorf("want a loss, got %v", err)
		}
	}
	type ending func(t *testing.T, etcd *clientv3.Client, c *mutex.Client, l *mutex.Lock)
	kinds := map[string][]mutex.Option{"plain": nil, "permit": {mutex.Semaphore(3)}, "writer": {mutex.Exclusive()}}
	for name, end := range map[string]ending{
		"it was given back": func(
			t *testing.T, _ *clientv3.Client, _ *mutex.Client, l *mutex.Lock,
		) {
			unlock(t, l)
		},
		"it was given back with writes": func(
			t *testing.T, _ *clientv3.Client, _ *mutex.Client, l *mutex.Lock,
		) {
			if err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/mine", "1")}); err != nil {
				t.Error(err)
			}
		},
		"somebody removed it, and unlock found out": func(
			t *testing.T, etcd *clientv3.Client, _ *mutex.Client, l *mutex.Lock,
		) {
			etcdDel(t, etcd, l)
			lost(t, l.Unlock())
		},
		"somebody removed it, and the watch found out": func(
			t *testing.T, etcd *clientv3.Client, c *mutex.Client, l *mutex.Lock,
		) {
			etcdDel(t, etcd, l)
			<-l.Lost()
			lost(t, l.Unlock())
			if err := c.Close(); err != nil { // waits for what goes on in the background
				t.Error(err)
			}
		},
		"somebody removed it, and nobody unlocked it": func(
			t *testing.T, etcd *clientv3.Client, c *mutex.Client, l *mutex.Lock,
		) {
			etcdDel(t, etcd, l)
			lost(t, l.Alive(context.Background()))
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		},
		"its handle was detached, and another gave it back": func(
			t *testing.T, etcd *clientv3.Client, c *mutex.Client, l *mutex.Lock,
		) {
			l.Detach()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			etcdDel(t, etcd, l)
		},
	} {
		for kind, options := range kinds {
			t.Run(name+", "+kind, func(t *testing.T) {
				lineInABubble(t, func(t *testing.T, q *line) {
					etcd := q.connect(t)
					first := stallFirst(etcd)
					locks := unhurried(t, etcd)
					l := take(t, locks, "a", options...)
					uuid := l.UUID()
					other := q.connect(t)
					end(t, other, locks, l)
					first.arrive(t)
					if doc := read(t, other, l.Name()); len(doc.Fields) > 0 {
						t.Errorf("held by nobody, as %s with token %d", doc.UUID, doc.Token)
					}
					if life := lifeOf(t, other, layout(t).Cancelled(uuid)); life < 30*time.Minute {
						t.Errorf("the mark lives for %v, a stalled connection may live longer", life)
					}
				})
			})
		}
	}
}

// A first sending that comes after its repetition was refused, and after the lock became free, takes nothing.
func TestLateSendingAfterARefusalIsRefused(t *testing.T) {
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			lineInABubble(t, func(t *testing.T, q *line) {
				holder := take(t, q.client(), "a", kind[0]...)
				etcd := q.connect(t)
				first := stallFirst(etcd)
				if _, err := newClient(t, etcd).TryLock(t.Context(), "a", kind[1]...); !errors.Is(err, mutex.ErrHeld) {
					t.Fatalf("want a refusal, got %v", err)
				}
				time.Sleep(time.Second) // it is cancelled in the background
				unlock(t, holder)
				first.arrive(t)
			})
		})
	}
}

// lifeOf is how long the lease of a key was granted for.
func lifeOf(t *testing.T, etcd *clientv3.Client, key string) time.Duration {
	t.Helper()
	r, err := etcd.Get(context.Background(), key)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("key %s: %v, %v", key, r, err)
	}
	lease, err := etcd.TimeToLive(context.Background(), clientv3.LeaseID(r.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(lease.GrantedTTL) * time.Second
}

// A claim without an answer is repeated and refused, because others have a share: the next claim is another attempt's.
func TestClaimAfterOneWithoutAnAnswerIsOfItsOwnUUID(t *testing.T) {
	for name, o := range map[string]mutex.Option{"permit": mutex.Semaphore(3), "reader": mutex.Shared()} {
		t.Run(name, func(t *testing.T) {
			lineInABubble(t, func(t *testing.T, q *line) {
				other := take(t, q.client(), "a", o)
				etcd := q.connect(t)
				first := stallFirst(etcd)
				l, err := newClient(t, etcd).Lock(t.Context(), "a", o)
				if err != nil {
					t.Fatal(err)
				}
				if d := read(t, q.etcd, l.Name()); d.UUID != l.UUID() || d.Token != l.Token() {
					t.Errorf("it was told that it holds %s as %s with token %d, etcd has %s with %d", l.Name(),
						l.UUID(), l.Token(), d.UUID, d.Token)
				}
				first.arrive(t)
				time.Sleep(time.Minute)
				unlock(t, l)
				unlock(t, other)
			})
		})
	}
}

// A first waiter that missed the answer to its own claim finds its hold when it looks again.
func TestWaiterKnowsItsOwnHold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		take(t, locks, "a")
		got := waits(t, locks)
		time.Sleep(time.Second)
		l := layout(t)
		f.deaf.Store(true)
		uuid, _ := value(t, f.operator, l.Tail("a"))
		hour := metadata.FormatTime(time.Now().Add(time.Hour))
		f.clearRecord("a")
		f.do(clientv3.OpPut(l.Field("a", metadata.FieldUUID), uuid),
			clientv3.OpPut(l.Field("a", metadata.FieldAlertAt), hour),
			clientv3.OpPut(l.Field("a", metadata.FieldAutoUnlockAt), hour))
		f.deaf.Store(false)
		select {
		case hold := <-got:
			if doc := read(t, f.operator, "a"); hold.UUID() != doc.UUID || hold.Token() != doc.Token {
				t.Errorf("the handle says %s token %d, the record %s token %d",
					hold.UUID(), hold.Token(), doc.UUID, doc.Token)
			}
			unlock(t, hold)
		case <-time.After(time.Minute):
			t.Fatal("it waits for itself")
		}
	})
}

// Leftovers of a record that only lost its uuid, deleted or leased, do not become part of the next hold.
func TestLeftoversOfAnEarlierHoldSayNothingOfTheNext(t *testing.T) {
	t.Parallel()
	lineInABubble(t, func(t *testing.T, q *line) {
		etcd := q.etcd
		for field, value := range map[string]string{
			"owner": "the-old-script", "locked_at": "1553682600", "purpose": "old", "alive": "1553682700 old",
		} {
			etcdtest.Put(t, etcd, layout(t).Field("a", field), value)
		}
		locks := newClient(t, etcd)
		l := take(t, locks, "a", mutex.Purpose("new"), mutex.Heartbeat(time.Hour),
			mutex.AutoUnlockAfter(15*time.Second))
		_, err := locks.TryLock(context.Background(), "a")
		held, isHeld := errors.AsType[*mutex.HeldError](err)
		if !isHeld || held.Holder.Owner != "billing" || held.Holder.Purpose != "new" || held.Holder.Alive != nil ||
			time.Since(held.Holder.LockedAt) > time.Hour {
			t.Errorf("the holder is %v", err)
		}
		etcdtest.Eventually(t, "the heartbeat", func() bool { return read(t, etcd, "a").Alive != nil })
		if doc := read(t, etcd, "a"); doc.Alive.Progress != "" || time.Since(doc.Alive.At) > time.Hour {
			t.Errorf("the heartbeat says %+v", doc.Alive)
		}
		unlock(t, l)
		wantEmpty(t, etcd)
	})
}
