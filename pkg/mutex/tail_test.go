package mutex_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// foreignUUID names the ticket of a client in another language.
const foreignUUID = "00000000-0000-4000-8000-000000000001"

// standIn puts a ticket and the tail of a client in another language, which does nothing by itself, with a lease that
// is never extended.
func (q *fake) standIn() clientv3.LeaseID {
	q.Helper()
	lease, err := q.etcd.Grant(context.Background(), 600)
	if err != nil {
		q.Fatal(err)
	}
	q.do(clientv3.OpPut(layout(q).Ticket("a", foreignUUID), "{}", clientv3.WithLease(lease.ID)),
		clientv3.OpPut(layout(q).Tail("a"), foreignUUID, clientv3.WithLease(lease.ID)))
	return lease.ID
}

func (q *fake) revoke(lease clientv3.LeaseID) {
	q.Helper()
	if _, err := q.etcd.Revoke(context.Background(), lease); err != nil {
		q.Fatal(err)
	}
}

// tailIs waits until the tail names this waiter's ticket, with its lease.
func (q *fake) tailIs(w *waiter) {
	q.Helper()
	etcdtest.Eventually(q, "the tail", func() bool {
		r, err := q.etcd.Get(context.Background(), layout(q).Tail("a"))
		return err == nil && len(r.Kvs) == 1 && string(r.Kvs[0].Value) == w.ticket.UUID &&
			clientv3.LeaseID(r.Kvs[0].Lease) == q.leaseOf(w)
	})
}

// kindsThatQueue are the options of a waiter, and of newcomers that would pass it where the queue does not keep them
// back.
func kindsThatQueue() map[string][2][]mutex.Option {
	return map[string][2][]mutex.Option{
		"plain":   {nil, nil},
		"writer":  {{mutex.Exclusive()}, {mutex.Shared()}},
		"permits": {{mutex.Semaphore(3), mutex.Weight(3)}, {mutex.Semaphore(3)}},
	}
}

// The newest waiter dies, and its lease takes the tail along: one of the others puts it back.
func TestDeathAtTheEndStarvesNobody(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		first := take(t, q.locks(), "a", kind[1]...)
		one := q.wait(q.locks(), kind[0]...)
		q.revoke(q.standIn())
		q.tailIs(one)
		if _, err := q.locks().TryLock(t.Context(), "a", kind[1]...); !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("a newcomer: %v", err)
		}
		unlock(t, first)
		unlock(t, q.turn(one))
	})
}

// withoutSpace has an etcd refuse leases and all transactions with a put while full is set, as it does when its space
// is used up.
func withoutSpace(etcd *clientv3.Client, full *atomic.Bool) *clientv3.Client {
	etcd.Lease = &grants{Lease: etcd.Lease, full: full}
	return onTxn(etcd, func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if full.Load() && puts(slices.Concat(txn.thenOps, txn.elseOps)) {
			return nil, rpctypes.ErrNoSpace
		}
		return txn.send(ctx)
	})
}

type grants struct {
	clientv3.Lease
	full *atomic.Bool
}

func (g *grants) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if g.full.Load() {
		return nil, rpctypes.ErrNoSpace
	}
	return g.Lease.Grant(ctx, ttl)
}

// puts reports whether one of the operations may put a key.
func puts(ops []clientv3.Op) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		_, thenOps, elseOps := op.Txn()
		return op.IsPut() || puts(slices.Concat(thenOps, elseOps))
	})
}

// While etcd refuses puts, the tail cannot be restored. The ticket is deleted anyway, and a remaining waiter restores
// the tail later.
func TestGivingUpAtTheEndOfAFullEtcd(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		var full atomic.Bool
		client := func() *mutex.Client { return newClient(t, withoutSpace(q.client(), &full)) }
		first := take(t, client(), "a")
		one := q.wait(client())
		two := q.wait(client())
		full.Store(true)
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
		full.Store(false)
		q.tailIs(one)
		unlock(t, first)
		unlock(t, q.turn(one))
	})
}

// The answer to an acquisition is lost, and its repetition finds etcd full: what it took is given back all the same.
func TestAcquisitionWithTheLastSpaceIsGivenBack(t *testing.T) {
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		var full, taken atomic.Bool
		lost := func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if taken.CompareAndSwap(false, true) {
				full.Store(true)
				return nil, context.DeadlineExceeded
			}
			return r, err
		}
		locks := newClient(t, onTxn(withoutSpace(q.client(), &full), lost))
		if _, err := locks.TryLock(t.Context(), "a", kind[0]...); !locktxn.NoSpace(err) {
			t.Errorf("want a full etcd, got %v", err)
		}
		etcdtest.Eventually(t, "the giving back", func() bool {
			return etcdtest.Count(t, q.etcd, mutex.DefaultPrefix) == 0
		})
		full.Store(false) // now it can be cancelled
	})
}
