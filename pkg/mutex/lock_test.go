package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestRecord(t *testing.T) {
	etcd, locks := onEtcd(t)
	l := take(t, locks, "billing/42", mutex.Purpose("monthly invoices"), mutex.Attribute("rows", 7))
	doc := read(t, etcd, "billing/42")
	if len(doc.Problems) > 0 || doc.UUID != l.UUID() || doc.Token != l.Token() || doc.Owner != "billing" ||
		doc.Hostname != "host-1" || doc.Purpose != "monthly invoices" || fmt.Sprint(doc.Attributes) != "map[rows:7]" {
		t.Errorf("the record is %+v", doc)
	}
	newest, _, _ := strings.Cut(doc.Backtrace, "\n")
	if !strings.Contains(newest, "/helpers_test.go:") ||
		!strings.HasSuffix(newest, " in github.com/clustermutex/unlocker/pkg/mutex_test.take") {
		t.Errorf("the newest frame is %q, want the caller of Lock", newest)
	}
	if held := refused(t, locks, "billing/42"); !reflect.DeepEqual(held.Holder.Record, doc.Record) {
		t.Errorf("want the record in the error, got %+v", held)
	}
	unlock(t, l)
	unlock(t, l) // which does nothing
	wantEmpty(t, etcd)
}

func TestLockEndsWithItsContext(t *testing.T) {
	queues(t, map[string]mutex.Option{"in the queue": nil, "past it": mutex.WithoutQueue()},
		func(t *testing.T, q *fake, o mutex.Option) {
			l := take(t, q.locks(), "a")
			time.AfterFunc(time.Second, func() {
				if w := q.waiting(); o == nil && (len(w) != 1 || time.Until(w[0].TimeoutAt.Time) != 59*time.Second) {
					t.Errorf("the ticket lacks its timeout: %+v", w)
				}
			})
			_, err := q.locks().Lock(within(t, time.Minute), "a", o)
			if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != l.UUID() {
				t.Errorf("want the holder, got %v", err)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(),
				`context deadline exceeded: lock "a" is held by billing on host-1`) {
				t.Errorf("want the context's error too, got %v", err)
			}
			if d := passed(); d != time.Minute {
				t.Errorf("it ended after %v", d)
			}
		})
}

func TestDoReleasesHoweverItsFunctionEnds(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		locks := q.locks()
		ctx, cancel := context.WithCancel(context.Background())
		err := locks.Do(ctx, "a", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || err.Error() != "context canceled" {
			t.Errorf("want the error of the function alone, got %v", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		locks.Do(t.Context(), "a", func(context.Context) error { panic("out of cheese") })
	})
}

func TestClosedClientKeepsItsLocksAndTakesNoMore(t *testing.T) {
	var log lines
	bubbleWith(t, log.options(), func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		unlock(t, take(t, locks, "released"))
		proctest.Must(t, locks.Close())
		if said := log.with("the client is closed, and"); len(said) != 1 || !strings.Contains(said[0], "lock=a uuid=") {
			t.Errorf("Close logs %q", said)
		}
		if _, err := locks.Lock(t.Context(), "b"); !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("lock after close: %v", err)
		}
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); cause != mutex.ErrClosed {
			t.Errorf("the hold's context ended with %v", cause)
		}
		if read(t, f.etcd, "a").UUID != l.UUID() {
			t.Error("Close released a lock that was not unlocked")
		}
		unlock(t, l)
	})
}

func TestLockTakenWhileItsClientClosesIsGivenBack(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		var c *mutex.Client
		c = newClient(t, onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(context.WithoutCancel(ctx))
			if txn.writes("/mutexes/a/uuid") {
				go c.Close()
				synctest.Wait()
			}
			return r, err
		}))
		if _, err := c.TryLock(t.Context(), "a"); !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRefusalByEtcdEndsTheWait(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		other := take(t, q.locks(), "a")
		c := newClient(t, onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if len(q.waiting()) > 0 && txn.writes("/mutexes/a/uuid") {
				return nil, rpctypes.ErrPermissionDenied
			}
			return txn.send(ctx)
		}))
		time.AfterFunc(time.Second, func() { unlock(t, other) })
		if _, err := c.Lock(t.Context(), "a"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFailedUnlockContinuesInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.away.Store(true)
		err := l.Unlock()
		if passed() != 15*time.Second || err == nil ||
			!strings.Contains(err.Error(), `unlock "a": etcd did not answer: context deadline exceeded; `) {
			t.Errorf("after %v: %v", passed(), err)
		}
		f.away.Store(false)
		time.Sleep(time.Minute)
		if doc := read(t, f.etcd, "a"); len(doc.Fields) > 0 {
			t.Error("the record stays")
		}
	})
}

func TestUnlockSucceedsIfTheAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.loseAnswers.Store(1)
		unlock(t, l)
	})
}

// The record was deleted by hand without a note, or the release took effect and its answer was lost: both look alike.
func TestUnlockAfterTheDeadlineReportsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Minute), mutex.AlertAfter(time.Minute))
		f.away.Store(true)
		<-l.Lost()
		time.AfterFunc(3*time.Second, func() {
			f.delete(mutex.DefaultPrefix)
			f.away.Store(false)
		})
		var lost *mutex.LostError
		if err := l.Unlock(); !errors.As(err, &lost) || lost.Certain {
			t.Errorf("unlock: %v", err)
		}
	})
}

func TestUnlockReportsIfItCannotReadTheEnding(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.loseAnswers.Store(1)
		time.AfterFunc(time.Second, func() { f.latency.Store(int64(time.Second)) }) // of the second sending
		time.AfterFunc(2500*time.Millisecond, func() { f.away.Store(true) })        // while it is under way
		if err := l.Unlock(); err == nil || errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock: %v", err)
		}
	})
}

func TestUnlockThatReadsTheEndingTakesNoLonger(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.delete(mutex.DefaultPrefix)
		f.latency.Store(int64(4 * time.Second))
		time.AfterFunc(time.Second, func() { f.away.Store(true) }) // the release is under way
		if err := l.Unlock(); !errors.Is(err, mutex.ErrNotHeld) || passed() != 5*time.Second {
			t.Errorf("unlock ended after %v with %v", passed(), err)
		}
	})
}

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
	_, err := s.txn.Load().send(context.Background())
	proctest.Must(t, err)
}

func TestLateRequestAfterItsHoldEndedIsRefused(t *testing.T) {
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
					t.Errorf("held without a holder, as %s with token %d", doc.UUID, doc.Token)
				}
				if life := q.life(layout(t).Cancelled(l.UUID())); life < 30*time.Minute {
					t.Errorf("the mark lives for %v, a stalled connection may live longer", life)
				}
			})
		})
	}
}

// A first request that arrives after its repetition was refused, when the lock is free again, takes nothing.
func TestLateRequestAfterARefusalIsRefused(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		holder := take(t, q.locks(), "a", kind[0]...)
		etcd := q.client()
		first := stallFirst(etcd)
		refused(t, newClient(t, etcd), "a", kind[1]...)
		time.Sleep(time.Second) // it is cancelled in the background
		unlock(t, holder)
		first.arrive(t)
	})
}

// An unanswered claim is repeated and refused because others have a share. The next claim belongs to a new attempt.
func TestClaimAfterAnUnansweredOneHasANewUUID(t *testing.T) {
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

// The first waiter, if it missed the answer to its own claim, finds its hold at its next look.
func TestWaiterRecognizesItsOwnHold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		take(t, locks, "a")
		got := waits(t, locks)
		time.Sleep(time.Second)
		l := layout(t)
		f.deaf.Store(true)
		uuid, _ := value(t, f.etcd, l.Tail("a"))
		hour := metadata.FormatTime(time.Now().Add(time.Hour))
		f.delete(l.Record("a"))
		f.do(clientv3.OpPut(l.Field("a", lockrecord.FieldUUID), uuid),
			clientv3.OpPut(l.Field("a", lockrecord.FieldAlertAt), hour),
			clientv3.OpPut(l.Field("a", lockrecord.FieldAutoUnlockAt), hour))
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
func TestLeftoversOfAnEarlierHoldAreIgnored(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		for field, value := range map[string]string{
			"owner": "the-old-script", "locked_at": "1553682600", "purpose": "old", "alive": "1553682700 old",
		} {
			q.put(layout(t).Field("a", field), value)
		}
		locks := q.locks()
		take(t, locks, "a", mutex.Purpose("new"), mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(15*time.Second))
		if held := refused(t, locks, "a").Holder; held.Owner != "billing" || held.Purpose != "new" ||
			held.Alive != nil || !held.LockedAt.Equal(time.Now()) {
			t.Errorf("the holder is %+v", held)
		}
		time.Sleep(10 * time.Second)
		if alive := read(t, q.etcd, "a").Alive; alive == nil || alive.Progress != "" ||
			time.Since(alive.At) > time.Hour {
			t.Errorf("the heartbeat says %+v", alive)
		}
	})
}
