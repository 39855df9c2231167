package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func ahead(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// A waiter that reports its position reads it at most once a second, and does not read more from a longer queue.
func TestIdleWaitsAskLittle(t *testing.T) {
	sizes := map[string]int64{}
	for _, n := range []int{20, 400} {
		queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
			first := take(t, q.locks(), "a", append(kind[0], mutex.BacktraceDepth(40))...)
			for i := range n {
				q.put(layout(t).Ticket("a", ahead(i)), "{}")
				q.put(layout(t).Tail("a"), ahead(i))
			}
			var largest atomic.Int64
			measured := func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
				r, err := txn.send(ctx)
				if err == nil {
					largest.Store(max(largest.Load(), int64(proto.Size((*pb.TxnResponse)(r)))))
				}
				return r, err
			}
			told := make(chan *mutex.HeldError, 10)
			giveUp, _ := queueUp(newClient(t, onTxn(q.client(), measured)), 1,
				append(kind[0], mutex.OnWait(func(w *mutex.HeldError) { told <- w }))...)
			if w := <-told; w.Position != n+1 || w.Holder.UUID != first.UUID() {
				t.Errorf("told %d of %d, holder %s", w.Position, n+1, w.Holder.UUID)
			}
			time.Sleep(time.Second) // the first looks are over
			largest.Store(0)
			before := q.sendings()
			time.Sleep(time.Minute)
			if n := q.sendings() - before; n > 72 { // and a recheck every five seconds
				t.Errorf("%d requests in a minute", n)
			}
			size, name := largest.Load(), t.Name()[strings.LastIndex(t.Name(), "/"):]
			if before, ok := sizes[name]; size > 1000 && !ok || size > before+20 && ok { // revisions grow with time
				t.Errorf("the largest answer has %d bytes behind %d, and %d behind fewer", size, n, before)
			}
			sizes[name] = size
			giveUp()
			q.delete(layout(t).Queue("a"))
		})
	}
}

// An overdue lock stays if no unlocker is running. Errors, waits and the log say so, after one read each.
func TestNoUnlockerRemovesAnOverdueLock(t *testing.T) {
	queues(t, map[string]string{"a lock": "a", "a reader of it": "a#7"}, func(t *testing.T, q *fake, record string) {
		var log lines
		var denied atomic.Bool
		var reads atomic.Int64
		c := newClient(t, onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if len(txn.thenOps) > 0 && string(txn.thenOps[0].KeyBytes()) == layout(t).Unlockers() {
				reads.Add(1)
				if denied.Load() {
					return nil, rpctypes.ErrPermissionDenied
				}
			}
			return txn.send(ctx)
		}), log.options())
		q.put(layout(t).Field(record, lockrecord.FieldUUID), "x")
		q.put(layout(t).Field(record, metadata.AttributeKind), metadata.KindShared)
		q.put(layout(t).Field(record, lockrecord.FieldAutoUnlockAt), metadata.FormatTime(time.Now().Add(time.Minute)))
		is := func(when string, want bool) {
			t.Helper()
			if held := refused(t, c, "a"); held.NoUnlocker != want {
				t.Errorf("%s: %v", when, held)
			}
		}
		is("before the deadline", false)
		var told atomic.Bool
		giveUp, ended := queueUp(c, 1, mutex.OnWait(func(w *mutex.HeldError) { told.Store(w.NoUnlocker) }))
		time.Sleep(90 * time.Second)
		n := reads.Load()
		giveUp()
		held, _ := errors.AsType[*mutex.HeldError](<-ended)
		if held == nil || !held.NoUnlocker || !told.Load() || len(log.with("no unlocker is running")) != 1 || n != 2 {
			t.Errorf("after %d reads: %v; told %v; log %q", n, held, told.Load(), log.text)
		}
		is("after the deadline", true)
		denied.Store(true)
		is("without the right to read", false)
		denied.Store(false)
		q.put(layout(t).Unlocker("stale"), "{}")
		is("without a lease", true)
		lease, err := q.etcd.Grant(t.Context(), 60)
		proctest.Must(t, err)
		q.do(clientv3.OpPut(layout(t).Unlocker("eu-1"), "{}", clientv3.WithLease(lease.ID)))
		is("while an unlocker is running", false)
		q.delete(layout(t).Unlockers())
		q.delete(layout(t).Record(record))
	})
}

// queueUp starts waits for lock "a". It returns a function that gives all of them up, and a channel with their results.
func queueUp(c *mutex.Client, waiters int, opts ...mutex.Option) (giveUp func(), ended chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, waiters)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() { _, err := c.Lock(ctx, "a", opts...); ended <- err })
	}
	return func() { cancel(); all.Wait() }, ended
}

// Whatever happens ahead of it, the waiter ends up knowing its position: others give up in the middle or at the front,
// or take their turn.
func TestPositionIsRightAfterOthersGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.put(layout(t).Field("a", lockrecord.FieldUUID), "x")
		for i := range 60 {
			f.put(layout(t).Ticket("a", ahead(i)), "{}")
			f.put(layout(t).Tail("a"), ahead(i))
		}
		var place atomic.Int64
		giveUp, _ := queueUp(locks, 1, mutex.OnWait(func(w *mutex.HeldError) { place.Store(int64(w.Position)) }))
		gone := func(i int) { f.delete(layout(t).Ticket("a", ahead(i))) }
		is := func(want int64, within time.Duration) {
			t.Helper()
			time.Sleep(within)
			if n := place.Load(); n != want {
				t.Errorf("place %d, want %d", n, want)
			}
		}
		is(61, time.Second)
		gone(0) // the next ones
		gone(1)
		is(59, 2*time.Second)
		gone(40) // far ahead: noticed when it is asked for
		is(58, 30*time.Second)
		for i := range 31 { // turns, as quick as nobody looks: the last of them holds the lock
			gone(i)
		}
		f.delete(layout(t).Field("a", lockrecord.FieldUUID))
		f.put(layout(t).Field("a", lockrecord.FieldUUID), ahead(31))
		is(28, 2*time.Second)
		giveUp()
	})
}

func TestPositionInALongQueueIsUnknown(t *testing.T) {
	queues(t, map[string]int{"100": 100, "0": 101}, func(t *testing.T, q *fake, others int) {
		take(t, q.locks(), "a")
		for range others - 1 {
			id := uuid.NewString()
			q.put(layout(t).Ticket("a", id), "{}")
			q.put(layout(t).Tail("a"), id)
		}
		giveUp, ended := queueUp(q.locks(), 1)
		synctest.Wait()
		giveUp()
		want := others
		if others > 100 {
			want = 0
		}
		if held, _ := errors.AsType[*mutex.HeldError](<-ended); held == nil || held.Position != want {
			t.Errorf("got %v, want position %d", held, want)
		}
		q.delete(layout(t).Queue("a"))
	})
}

func TestIdleLeasesAreRevoked(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		first := take(t, locks, "a")
		got := waits(t, locks)
		time.Sleep(time.Second)
		unlock(t, first)
		unlock(t, <-got)
		if n := leased(t, f); n != 1 {
			t.Errorf("%d leases after the wait, want one for the next", n)
		}
		time.Sleep(35 * time.Second)
		if n := leased(t, f); n != 0 {
			t.Errorf("%d leases half a minute later", n)
		}
	})
}

// leased returns the number of leases.
func leased(t *testing.T, f *fake) int {
	t.Helper()
	all, err := f.etcd.Leases(t.Context())
	proctest.Must(t, err)
	return len(all.Leases)
}

// foreignUUID names the ticket of a client in another language.
const foreignUUID = "00000000-0000-4000-8000-000000000001"

// standIn puts a ticket and the tail of a client in another language, which does nothing by itself, with a lease that
// is never extended.
func (q *fake) standIn() {
	q.Helper()
	lease, err := q.etcd.Grant(context.Background(), 600)
	proctest.Must(q, err)
	q.do(clientv3.OpPut(layout(q).Ticket("a", foreignUUID), "{}", clientv3.WithLease(lease.ID)),
		clientv3.OpPut(layout(q).Tail("a"), foreignUUID, clientv3.WithLease(lease.ID)))
}

// tailIs waits until the tail names this waiter's ticket, with its lease.
func (q *fake) tailIs(w *waiter) {
	q.Helper()
	etcdtest.Eventually(q, "the tail", func() bool {
		r, err := q.etcd.Get(context.Background(), layout(q).Tail("a"))
		return err == nil && len(r.Kvs) == 1 && string(r.Kvs[0].Value) == w.ticket.UUID &&
			clientv3.LeaseID(r.Kvs[0].Lease) == q.lease(layout(q).Ticket("a", w.ticket.ID))
	})
}

// kindsThatQueue returns the options of a waiter, and of newcomers that would overtake it without the queue.
func kindsThatQueue() map[string][2][]mutex.Option {
	return map[string][2][]mutex.Option{
		"plain":   {nil, nil},
		"writer":  {{mutex.Exclusive()}, {mutex.Shared()}},
		"permits": {{mutex.Semaphore(3), mutex.Weight(3)}, {mutex.Semaphore(3)}},
	}
}

// The newest waiter dies, and the tail expires with its lease: one of the others restores it.
func TestDeathOfTheTailStarvesNoWaiter(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		first := take(t, q.locks(), "a", kind[1]...)
		one := q.wait(q.locks(), kind[0]...)
		q.standIn()
		q.revoke(layout(t).Tail("a"))
		q.tailIs(one)
		refused(t, q.locks(), "a", kind[1]...)
		unlock(t, first)
		q.turns(one)
	})
}

// While etcd refuses puts, the tail cannot be restored. The ticket is deleted anyway, and a remaining waiter restores
// the tail later.
func TestGivingUpAsTailOnAFullEtcd(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		one := q.wait(q.locks())
		two := q.wait(q.locks())
		q.full.Store(true)
		two.cancel()
		<-two.got
		if held, ok := errors.AsType[*mutex.HeldError](two.err); !ok || held.Position != 2 ||
			held.Holder.UUID != first.UUID() {
			t.Errorf("the waiter that gave up got %v", two.err)
		}
		if w := q.waiting(); len(w) != 1 || w[0].UUID != one.ticket.UUID {
			t.Errorf("waiting: %+v", w)
		}
		time.Sleep(time.Minute)
		q.full.Store(false)
		q.tailIs(one)
		unlock(t, first)
		q.turns(one)
	})
}

// A waiter whose ticket was deleted claims the lock again, as if it had become free. If etcd does not answer that, the
// error names the holders that were read last.
func TestGivingUpNamesTheLastKnownHolders(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		reader := take(t, q.locks(), "a", mutex.Shared())
		var lost atomic.Bool
		cut := onTxn(q.etcd, func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if lost.Load() && txn.writes(layout(t).Field("a", lockrecord.FieldUUID)) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			r, err := txn.send(ctx)
			if tickets, _ := q.etcd.Delete(ctx, layout(t).Queue("a"), clientv3.WithPrefix()); tickets.Deleted > 0 {
				lost.Store(true)
			}
			return r, err
		})
		_, err := newClient(t, cut).Lock(within(t, 30*time.Second), "a", mutex.Exclusive())
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !lost.Load() || !ok || len(held.Holders) != 1 || held.Holders[0].UUID != reader.UUID() {
			t.Errorf("the waiter got %v", err)
		}
		unlock(t, reader)
	})
}

// What a plain waiter reads when it joins the queue has no readers, but it was refused because of one.
func TestPlainWaiterThatIsCutOffNamesAReader(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		reader := take(t, q.locks(), "a", mutex.Shared())
		cut := onTxn(q.etcd, func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if etcdtest.Count(t, q.etcd, layout(t).Queue("a")) > 0 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return txn.send(ctx)
		})
		_, err := newClient(t, cut).Lock(within(t, 30*time.Second), "a")
		if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != reader.UUID() {
			t.Errorf("the waiter got %v", err)
		}
		unlock(t, reader)
	})
}

// The answer to an acquisition is lost, and its repetition finds etcd full: the lock is released anyway.
func TestAcquisitionWithTheLastSpaceIsReleased(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		q.loseAnswers.Store(1)
		time.AfterFunc(time.Second, func() { q.full.Store(true) })
		if _, err := q.locks().TryLock(t.Context(), "a", kind[0]...); !locktxn.IsNoSpace(err) {
			t.Errorf("want a full etcd, got %v", err)
		}
		etcdtest.Eventually(t, "the giving back", func() bool {
			return etcdtest.Count(t, q.etcd, mutex.DefaultPrefix) == 0
		})
		q.full.Store(false) // now it can be cancelled
	})
}
