package mutex_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// stalled holds back the first transaction until the test sends it.
type stalled struct{ txn atomic.Pointer[heldTxn] }

func stallFirst(etcd *clientv3.Client) *stalled {
	var s stalled
	onTxn(etcd, func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if s.txn.CompareAndSwap(nil, txn) {
			return nil, context.DeadlineExceeded
		}
		return txn.send(ctx)
	})
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
	remove := func(q *fake, l *mutex.Lock) { q.delete(layout(q).Record(l.Name())) }
	kinds := map[string][]mutex.Option{"plain": nil, "permit": {mutex.Semaphore(3)}, "writer": {mutex.Exclusive()}}
	type ending = func(q *fake, c *mutex.Client, l *mutex.Lock) error
	for name, end := range map[string]ending{
		"given back":             func(_ *fake, _ *mutex.Client, l *mutex.Lock) error { return l.Unlock() },
		"given back with writes": func(_ *fake, _ *mutex.Client, l *mutex.Lock) error { return l.UnlockWith(nil) },
		"removed, and unlock found out": func(q *fake, _ *mutex.Client, l *mutex.Lock) error {
			remove(q, l)
			return l.Unlock()
		},
		"removed, and the watch found out": func(q *fake, c *mutex.Client, l *mutex.Lock) error {
			remove(q, l)
			<-l.Lost()
			return errors.Join(l.Unlock(), c.Close()) // Close waits for what goes on in the background
		},
		"removed, and nobody unlocked it": func(q *fake, c *mutex.Client, l *mutex.Lock) error {
			remove(q, l)
			return errors.Join(l.Alive(context.Background()), c.Close())
		},
		"detached, and given back by another": func(q *fake, c *mutex.Client, l *mutex.Lock) error {
			l.Detach()
			err := c.Close()
			remove(q, l)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			queues(t, kinds, func(t *testing.T, q *fake, options []mutex.Option) {
				etcd := q.client()
				first := stallFirst(etcd)
				locks := unhurried(t, etcd)
				l := take(t, locks, "a", options...)
				err := end(q, locks, l)
				_, isLost := errors.AsType[*mutex.LostError](err)
				if isLost != strings.HasPrefix(name, "removed") || !isLost && err != nil {
					t.Errorf("got %v", err)
				}
				first.arrive(t)
				if doc := read(t, q.etcd, l.Name()); len(doc.Fields) > 0 {
					t.Errorf("held by nobody, as %s with token %d", doc.UUID, doc.Token)
				}
				if life := lifeOf(t, q.etcd, layout(t).Cancelled(l.UUID())); life < 30*time.Minute {
					t.Errorf("the mark lives for %v, a stalled connection may live longer", life)
				}
			})
		})
	}
}

// A first sending that comes after its repetition was refused, and after the lock became free, takes nothing.
func TestLateSendingAfterARefusalIsRefused(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		holder := take(t, q.locks(), "a", kind[0]...)
		etcd := q.client()
		first := stallFirst(etcd)
		if _, err := newClient(t, etcd).TryLock(t.Context(), "a", kind[1]...); !errors.Is(err, mutex.ErrHeld) {
			t.Fatalf("want a refusal, got %v", err)
		}
		time.Sleep(time.Second) // it is cancelled in the background
		unlock(t, holder)
		first.arrive(t)
	})
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
	queues(t, map[string]mutex.Option{"permit": mutex.Semaphore(3), "reader": mutex.Shared()},
		func(t *testing.T, q *fake, o mutex.Option) {
			take(t, q.locks(), "a", o)
			etcd := q.client()
			first := stallFirst(etcd)
			l := <-waits(t, newClient(t, etcd), o)
			if d := read(t, q.etcd, l.Name()); d.UUID != l.UUID() || d.Token != l.Token() {
				t.Errorf("it was told that it holds %s as %s with token %d, etcd has %s with %d", l.Name(),
					l.UUID(), l.Token(), d.UUID, d.Token)
			}
			first.arrive(t)
			time.Sleep(time.Minute)
		})
}

// A first waiter that missed the answer to its own claim finds its hold when it looks again.
func TestWaiterKnowsItsOwnHold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		take(t, locks, "a")
		got := waits(t, locks)
		time.Sleep(time.Second)
		l := layout(t)
		f.deaf.Store(true)
		uuid, _ := value(t, f.etcd, l.Tail("a"))
		hour := metadata.FormatTime(time.Now().Add(time.Hour))
		f.delete(l.Record("a"))
		f.do(clientv3.OpPut(l.Field("a", metadata.FieldUUID), uuid),
			clientv3.OpPut(l.Field("a", metadata.FieldAlertAt), hour),
			clientv3.OpPut(l.Field("a", metadata.FieldAutoUnlockAt), hour))
		f.deaf.Store(false)
		select {
		case hold := <-got:
			if doc := read(t, f.etcd, "a"); hold.UUID() != doc.UUID || hold.Token() != doc.Token {
				t.Errorf("the handle says %s token %d, the record %s token %d",
					hold.UUID(), hold.Token(), doc.UUID, doc.Token)
			}
		case <-time.After(time.Minute):
			t.Fatal("it waits for itself")
		}
	})
}

// Leftovers of a record that only lost its uuid, deleted or leased, do not become part of the next hold.
func TestLeftoversOfAnEarlierHoldSayNothingOfTheNext(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		for field, value := range map[string]string{
			"owner": "the-old-script", "locked_at": "1553682600", "purpose": "old", "alive": "1553682700 old",
		} {
			q.put(layout(t).Field("a", field), value)
		}
		locks := q.locks()
		take(t, locks, "a", mutex.Purpose("new"), mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(15*time.Second))
		_, err := locks.TryLock(t.Context(), "a")
		held, isHeld := errors.AsType[*mutex.HeldError](err)
		if !isHeld || held.Holder.Owner != "billing" || held.Holder.Purpose != "new" || held.Holder.Alive != nil ||
			!held.Holder.LockedAt.Equal(time.Now()) {
			t.Errorf("the holder is %v", err)
		}
		time.Sleep(10 * time.Second)
		if alive := read(t, q.etcd, "a").Alive; alive == nil || alive.Progress != "" || time.Since(alive.At) > time.Hour {
			t.Errorf("the heartbeat says %+v", alive)
		}
	})
}
