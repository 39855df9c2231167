package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestTryLockDoesNotPassTheQueue(t *testing.T) {
	t.Parallel()
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		foreign := layout(t).Field("a", metadata.FieldUUID)
		q.put(foreign, "x")
		w := q.wait(c)
		_, err := q.locks().TryLock(context.Background(), "a")
		if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != "x" {
			t.Errorf("while it is held: %v", err)
		}
		w.cancel()
		<-w.got
		// A ticket and a tail of another client in another language, which is slow to take its turn.
		q.put(layout(t).Ticket("a", "00000000-0000-4000-8000-000000000001"), "{}")
		q.put(layout(t).Tail("a"), "00000000-0000-4000-8000-000000000001")
		q.delete(foreign)
		_, err = c.TryLock(context.Background(), "a")
		if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.Token != 0 || held.Position != 2 {
			t.Errorf("while others queue: %v", err)
		}
		want := `lock "a" is free, but others queue for it; position 2 in the queue`
		if err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
		unlock(t, take(t, c, "a", mutex.WithoutQueue()))
		q.delete(layout(t).Queue("a"))
	})
}

func TestTailThatDanglesHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		for _, value := range []string{foreignUUID, "", "no uuid", ".tail", strings.Repeat("x", 1<<19)} {
			for _, o := range []mutex.Option{nil, mutex.Semaphore(2)} {
				q.put(layout(t).Tail("a"), value)
				unlock(t, take(t, c, "a", o))
				if n := etcdtest.Count(t, q.etcd, mutex.DefaultPrefix); n != 0 {
					t.Errorf("%d keys are left by TryLock", n)
				}
				q.put(layout(t).Tail("a"), value)
				l, err := c.Lock(context.Background(), "a", o)
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, l)
			}
		}
	})
}

func TestWaiterThatDiesInTheMiddleCostsItsLeaseAtMost(t *testing.T) {
	t.Parallel()
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		first := take(t, c, "a")
		one := q.wait(c)
		dead := q.wait(q.locks())
		two := q.wait(c)
		three := q.wait(c)
		lease, err := q.etcd.TimeToLive(context.Background(), q.leaseOf(dead))
		if err != nil || lease.GrantedTTL != 10 {
			t.Errorf("a ticket outlives its waiter by %+v, want 10 s: %v", lease, err)
		}
		if _, err := q.etcd.Revoke(context.Background(), q.leaseOf(dead)); err != nil {
			t.Fatal(err)
		}
		etcdtest.Eventually(t, "the new position", func() bool {
			w := q.waiting()
			return len(w) == 4 &&
				w[3].Revision > three.ticket.Revision
		})
		if again := q.waiting()[3]; again.UUID == dead.ticket.UUID {
			t.Error("a uuid is used for two tickets")
		}
		unlock(t, first)
		for _, w := range []*waiter{one, two, three, dead} { // who lost its place got in line again, at the end
			unlock(t, q.turn(w))
		}
	})
}

func TestWaiterSaysWhenItGivesUp(t *testing.T) {
	t.Parallel()
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		first := take(t, c, "a")
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		done := make(chan error)
		go func() { _, err := c.Lock(ctx, "a"); done <- err }()
		etcdtest.Eventually(t, "the ticket", func() bool { return len(q.waiting()) == 1 })
		if d := time.Until(q.waiting()[0].TimeoutAt.Time); d < 59*time.Minute || d > time.Hour {
			t.Errorf("it says that it gives up in %v", d)
		}
		cancel()
		<-done
		unlock(t, first)
	})
}

// A send that joins the queue, and that etcd commits after its waiter gave up, leaves nothing: neither one that takes
// the lock or joins, as a client with a lease at hand sends it, nor the join of one that had to ask for a lease.
func TestLateJoinLeavesNothing(t *testing.T) {
	for name, leased := range map[string]bool{"with a lease": true, "without one": false} {
		t.Run(name, func(t *testing.T) { lateJoinLeavesNothing(t, leased) })
	}
}

func lateJoinLeavesNothing(t *testing.T, leased bool) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		etcd := q.client()
		var late atomic.Pointer[heldTxn]
		armed := !leased
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if armed && joinsTheQueue(txn) {
				late.CompareAndSwap(nil, txn)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return txn.send(ctx)
		}}
		c := newClient(t, etcd)
		if leased {
			ctx := untilThen(t, func() bool { return len(q.waiting()) > 0 })
			if _, err := c.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			armed = true
		}
		ctx := untilThen(t, func() bool { return late.Load() != nil })
		if _, err := c.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Fatalf("want the end of the context, got %v", err)
		}
		if err := c.Close(); err != nil { // waits for the clean-up
			t.Fatal(err)
		}
		if _, err := late.Load().send(context.Background()); err != nil && !locktxn.LeaseGone(err) ||
			len(q.waiting()) > 0 {
			t.Errorf("the late join: %v; waiting: %v", err, q.waiting())
		}
		unlock(t, first)
		if r, err := late.Load().send(context.Background()); err == nil && r.Succeeded && leased {
			t.Error("the late join took the lock")
		}
		if doc := read(t, q.etcd, "a"); doc.Token != 0 || len(q.waiting()) > 0 {
			t.Errorf("left: %+v; waiting: %v", doc.Record, q.waiting())
		}
	})
}

// joinsTheQueue reports whether a transaction puts a ticket, by itself or where it does not take the lock.
func joinsTheQueue(txn *heldTxn) bool {
	ops := txn.elseOps
	if len(txn.cmps) == 0 {
		ops = txn.thenOps
	}
	return len(ops) == 3 && ops[0].IsGet() && ops[2].IsTxn()
}

// unhurried returns a client that does not retry just because the machine is busy.
func unhurried(t testing.TB, etcd *clientv3.Client) *mutex.Client {
	t.Helper()
	return newClient(t, etcd, mutex.Options{AttemptTimeout: time.Minute, RequestTimeout: 3 * time.Minute})
}

// Each waiter waits for one release: no thundering herd, and the work does not grow with the queue.
func TestWorkOfAHoldDoesNotGrowWithTheQueue(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{2, 10, 100} {
		t.Run(fmt.Sprintf("%d waiters", waiters), func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				var requests atomic.Int64
				var clients []*mutex.Client
				for range min(waiters, 10) {
					etcd := q.client()
					etcd.KV = &txns{KV: etcd.KV,
						commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
							requests.Add(1)
							return txn.send(ctx)
						}}
					clients = append(clients, unhurried(t, etcd))
				}
				patient := unhurried(t, q.client())
				round := func() (requestsOf, commits float64, order []int64) {
					first := take(t, patient, "a")
					began := requests.Load()
					revision := first.Token()
					var mu sync.Mutex
					var wg sync.WaitGroup
					for i := range waiters {
						wg.Go(func() {
							l, err := clients[i%len(clients)].Lock(context.Background(), "a")
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							order = append(order, l.Token())
							mu.Unlock()
							unlock(t, l)
						})
					}
					etcdtest.Eventually(t, "the queue", func() bool { return len(q.waiting()) == waiters })
					unlock(t, first)
					wg.Wait()
					end, err := q.etcd.Get(context.Background(), "x")
					if err != nil {
						t.Fatal(err)
					}
					n := float64(waiters)
					return float64(requests.Load()-began) / n, float64(end.Header.Revision-revision-1) / n, order
				}
				round() // the leases are there now
				perHold, commits, order := round()
				if perHold > 4.2 || commits > 3.001 {
					t.Errorf("%.2f requests and %.2f commits a hold", perHold, commits)
				}
				if !slices.IsSorted(order) {
					t.Errorf("tokens in the order of the turns: %v", order)
				}
			})
		})
	}
}

// watched returns how many watches were opened since the last call.
func watched(spies ...<-chan string) (n int) {
	synctest.Wait()
	for _, opened := range spies {
		for len(opened) > 0 {
			<-opened
			n++
		}
	}
	return n
}

// A waiter behind one of another client watches one key.
func TestWaiterBehindAnotherClientWatchesOneKey(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		var waiters []*waiter
		var spies []<-chan string
		for range 5 {
			etcd := q.client()
			spies = append(spies, spyOnWatches(etcd))
			waiters = append(waiters, q.wait(newClient(t, etcd)))
		}
		unlock(t, first)
		for _, w := range waiters {
			unlock(t, q.turn(w))
		}
		if n := watched(spies...); n != 5 {
			t.Errorf("%d watches of five waiters", n)
		}
	})
}

// The ticket of a holder whose record somebody deletes by hand goes with the holder's lease.
func TestRecordThatIsDeletedByHandLetsTheNextOneIn(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		one := q.wait(q.locks())
		two := q.wait(q.locks())
		unlock(t, first)
		q.turn(one)
		q.delete(layout(t).Record("a"))
		unlock(t, q.turn(two))
	})
}
