package mutex_test

import (
	"context"
	"errors"
	"fmt"
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

// standIn puts a ticket and the tail of another client, which does nothing by itself, with a lease that is never
// extended.
func (q *fake) standIn() clientv3.LeaseID {
	q.Helper()
	ctx := context.Background()
	lease, err := q.etcd.Grant(ctx, 600)
	if err != nil {
		q.Fatal(err)
	}
	l := layout(q)
	r, err := q.etcd.Txn(ctx).Then(
		clientv3.OpPut(l.Ticket("a", foreignUUID), "{}", clientv3.WithLease(lease.ID)),
		clientv3.OpPut(l.Tail("a"), foreignUUID, clientv3.WithLease(lease.ID)),
	).Commit()
	if err != nil || !r.Succeeded {
		q.Fatal(err)
	}
	return lease.ID
}

// tail returns whose ticket the tail names, and its lease; both are empty without a tail.
func (q *fake) tail() (uuid string, lease clientv3.LeaseID) {
	q.Helper()
	r, err := q.etcd.Get(context.Background(), layout(q).Tail("a"))
	if err != nil {
		q.Fatal(err)
	}
	for _, kv := range r.Kvs {
		uuid = string(kv.Value)
		lease = clientv3.LeaseID(kv.Lease)
	}
	return uuid, lease
}

// tailIs waits until the tail names this ticket, with its lease.
func (q *fake) tailIs(want string, with clientv3.LeaseID) {
	q.Helper()
	etcdtest.Eventually(q, fmt.Sprintf("a tail that names %q with lease %x", want, with), func() bool {
		uuid, lease := q.tail()
		return uuid == want && lease == with
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
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				first := take(t, q.locks(), "a", kind[1]...)
				one := q.wait(q.locks(), kind[0]...)
				lease := q.standIn()
				if _, err := q.etcd.Revoke(context.Background(), lease); err != nil {
					t.Fatal(err)
				}
				q.tailIs(one.ticket.UUID, q.leaseOf(one))
				if _, err := q.locks().TryLock(t.Context(), "a", kind[1]...); !errors.Is(err, mutex.ErrHeld) {
					t.Errorf("a newcomer: %v", err)
				}
				unlock(t, first)
				unlock(t, q.turn(one))
			})
		})
	}
}

// withoutSpace has an etcd refuse leases and all transactions with a put while full is set, as it does when its space
// is used up.
func withoutSpace(etcd *clientv3.Client, full *atomic.Bool) *clientv3.Client {
	etcd.Lease = &grants{Lease: etcd.Lease, full: full}
	etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if full.Load() && puts(slices.Concat(txn.thenOps, txn.elseOps)) {
			return nil, rpctypes.ErrNoSpace
		}
		return txn.send(ctx)
	}}
	return etcd
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
		q.tailIs(one.ticket.UUID, q.leaseOf(one))
		unlock(t, first)
		unlock(t, q.turn(one))
	})
}

// The answer to an acquisition is lost, and its repetition finds etcd full: what it took is given back all the same.
func TestAcquisitionWithTheLastSpaceIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				var full, taken atomic.Bool
				etcd := withoutSpace(q.client(), &full)
				lost := func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
					r, err := txn.send(ctx)
					if taken.CompareAndSwap(false, true) {
						full.Store(true)
						return nil, context.DeadlineExceeded
					}
					return r, err
				}
				etcd.KV = &txns{KV: etcd.KV, commit: lost}
				if _, err := newClient(t, etcd).TryLock(t.Context(), "a", kind[0]...); !locktxn.NoSpace(err) {
					t.Errorf("want a full etcd, got %v", err)
				}
				etcdtest.Eventually(t, "the giving back", func() bool {
					return etcdtest.Count(t, q.etcd, mutex.DefaultPrefix) == 0
				})
				full.Store(false) // now it can be cancelled
			})
		})
	}
}
